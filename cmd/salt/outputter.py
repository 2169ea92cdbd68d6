# Shows values by outputters of Salt's library and of the administrator; it follows
# master/pyrunner/kept.py.
import functools

import salt.config
import salt.loader
import salt.output


@functools.cache
def options(config):
    return dict(salt.config.client_config(config))


def show(request):
    opts = options(request["config"])
    opts.update(request["opts"])
    for name in ("output", "progress", "static"):
        opts.pop(name, None)
    if request["out"] not in salt.loader.outputters(opts):
        return {"unknown": True}
    text = salt.output.try_printout(request["data"], request["out"], opts, _retcode=request["retcode"])
    return {"text": text if isinstance(text, str) else "" if text is None else str(text)}


serve(show)
