# What goes on as long as the master wants it (pyhost.Session): returners that get one call after
# the other, and engines.


def stay(request, task):
    opts = salt.config.master_config(request["config"])
    opts.update(request["options"])
    if request["op"] == "engine":
        return engine(request, opts, task)
    return returner(opts, task)


def returner(opts, task):
    """Answers each order with what its call has raised, if anything."""
    minion = salt.minion.MasterMinion({**opts, "file_client": "local"})  # as EventReturn of salt/utils/event.py
    held.append(minion)
    task.begun()
    while (order := task.receive()) is not None:
        task.send(perform(minion.returners, order))
    return {"error": ""}


def perform(returners, order):
    function = order["returner"] + ".event_return"
    if function not in returners:
        return {"missing": True, "error": returners.missing_fun_string(function)}
    try:
        events = []
        for raw in order["items"]:
            tag, data = salt.utils.event.SaltEvent.unpack(raw)
            events.append({"data": data, "tag": tag})
        returners[function](events)
    except BaseException as exc:  # pylint: disable=broad-except
        return {"error": describe(exc)}
    return {"error": ""}


def engine(request, opts, task):
    """Runs one engine until it ends (salt/engines/__init__.py)."""
    utils = salt.loader.utils(opts)
    runners = salt.loader.runner(opts, utils=utils)
    functions = salt.loader.minion_mods(opts, utils=utils)
    engines = salt.loader.engines(opts, functions, runners, utils)
    held.append((utils, runners, functions, engines))
    function = request["module"] + ".start"
    if function not in engines:
        return {"error": engines.missing_fun_string(function)}
    task.begun()
    engines[function](**request["arguments"])
    return {"error": ""}


