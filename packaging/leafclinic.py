"""Where the bundled program begins: the same `main` as the command `leafclinic`."""

import sys

from app.__main__ import main

sys.exit(main())
