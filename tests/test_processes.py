"""Which tests share a process when the suite runs on several cores."""

from types import SimpleNamespace

FILES = ("tests/app/test_a.py", "tests/core/test_b.py", "tests/e2e/test_window_c.py")
TESTS = [f"{file}::test_{number}" for number in range(3) for file in FILES]


class Worker:
    """What a scheduler asks of a process."""

    shutting_down = False

    def __init__(self, name):
        self.gateway, self.files = SimpleNamespace(id=name), set()

    def send_runtest_some(self, indices):
        self.files |= {TESTS[index].split("::")[0] for index in indices}

    def shutdown(self):
        self.shutting_down = True


def test_a_file_stays_in_one_process_and_so_does_the_window(request):
    given = {"tx": ["popen", "popen"], "dist": "loadgroup"}
    config = SimpleNamespace(option=SimpleNamespace(loadscopereorder=True), getvalue=given.get, getoption=given.get)
    scheduler = request.config.hook.pytest_xdist_make_scheduler(config=config, log=None)
    workers = [Worker("gw0"), Worker("gw1")]
    for worker in workers:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, TESTS)
    scheduler.schedule()
    assert [worker.files for worker in workers] == [{FILES[0], FILES[2]}, {FILES[1]}]
