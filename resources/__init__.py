"""Icons, disease cards, translations and the shipped model; read through `app.resources`."""
