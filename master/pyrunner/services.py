# What goes on as long as the master wants it (pyhost.Session): returners that get one call after
# the other, and engines.


def stay(request, task):
    opts = salt.config.master_config(request["config"])
    opts.update(request["options"])
    laid_out.follow(opts)
    if request["op"] == "engine":
        return engine(request, opts, task)
    if request["op"] == "jobs":
        minion = salt.minion.MasterMinion(opts, states=False, rend=False)  # as AESFuncs of salt/master.py
        return returner(minion, keep_job, task)
    minion = salt.minion.MasterMinion({**opts, "file_client": "local"})  # as EventReturn of salt/utils/event.py
    return returner(minion, perform, task)


def returner(minion, function, task):
    """Answers each order with what its call has raised, if anything."""
    held.append(minion)
    task.begun()
    me = os.getpid()
    while (order := task.receive()) is not None:
        reply = function(minion.returners, order)
        if os.getpid() != me:  # the returner has forked, and both have come back
            os._exit(0)
        task.send(reply)
    return {"error": ""}


OPTIONAL = ("clean_old_jobs", "update_endtime")  # Salt's master calls them if they are there
lacking = set()


def keep_job(returners, order):
    """Makes one call by which a job is kept. What a returner does not have is left out, as in Salt."""
    for raw in order["items"]:
        call = loads(raw)
        function = order["returner"] + "." + call["function"]
        if function not in returners:
            if not any(name.startswith(order["returner"] + ".") for name in returners):
                return {"missing": True, "error": returners.missing_fun_string(function)}
            if call["function"] not in OPTIONAL and function not in lacking:
                lacking.add(function)
                logging.getLogger("returners").critical("the returner of jobs has no function %s", function)
            return {"error": "", "lacking": True}
        try:
            kwargs = call["kwargs"]
            if "minions" in kwargs and not takes(returners[function], "minions"):
                kwargs = {}
            returners[function](*call["args"], **kwargs)
        except BaseException as exc:  # pylint: disable=broad-except
            return {"error": describe(exc)}
    return {"error": ""}


def loads(raw):
    try:
        return salt.payload.loads(raw)
    except Exception:  # pylint: disable=broad-except
        return unpack(raw)  # text that is no UTF-8


def takes(function, name):
    spec = salt.utils.args.get_function_argspec(function)
    return name in spec.args or bool(spec.keywords)


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


