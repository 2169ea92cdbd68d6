#!py
def run():
    """Who fires, and what comes of it."""
    return {
        "touch": {"local.file.touch": [{"tgt": data["id"]}, {"arg": ["/tmp/" + tag.replace("/", "_")]}]},
        "echo": {"runner.own.every": [{"args": {"text": sorted(data), "tgt": 1}}]},
    }
