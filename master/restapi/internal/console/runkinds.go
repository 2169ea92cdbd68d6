package console

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"saltern/master/jobs"
	"saltern/master/runner"
	"saltern/master/saltyaml"
	"saltern/master/value"
)

// Kinds of what the page Run starts.
const (
	kindMinions       = "minions"
	kindOrchestration = "orchestration"
	kindRunner        = "runner"
	kindWheel         = "wheel"
)

// runKind is a kind as the page offers it.
type runKind struct {
	Name, Word, About string
	Here              bool
}

// offer is a function that the form offers, with a few words about it.
type offer struct{ Name, About string }

// orchestrate is the runner that runs an orchestration.
const orchestrate = "state.orchestrate"

// chooseKind sets the kinds that the user may run, and the present one: the first of them unless the
// form names one.
func (d *runPage) chooseKind(v *visit) error {
	for _, k := range []runKind{
		{Name: kindMinions, Word: "Minions", About: "A function on the minions that a target selects."},
		{Name: kindOrchestration, Word: "Orchestration", About: "Steps on several minions, in order, by the state files of the master."},
		{Name: kindRunner, Word: "Runner", About: "A function of the master itself, which looks at minions, jobs and files, or does something for them."},
		{Name: kindWheel, Word: "Wheel", About: "A function that changes the master: its keys, files and configuration."},
	} {
		if !v.mayRunKind(k.Name) {
			continue
		}
		k.Here = k.Name == d.Kind
		d.Kinds = append(d.Kinds, k)
	}

	if len(d.Kinds) == 0 {
		return &Refusal{http.StatusUnauthorized, "You may run nothing: external_auth permits you no function on minions, no runner and no wheel function."}
	}

	if d.Kind != "" && !slices.ContainsFunc(d.Kinds, func(k runKind) bool { return k.Here }) {
		return &Refusal{http.StatusForbidden, "You may not run that: external_auth does not permit it to you, or netapi_enable_clients lacks its client."}
	}

	if d.Kind == "" {
		d.Kind = d.Kinds[0].Name
		d.Kinds[0].Here = true
	}

	return nil
}

// mayRunKind reports whether the page offers a kind to the user.
func (v *visit) mayRunKind(kind string) bool {
	switch kind {
	case kindMinions:
		return v.mayCall("local_async", "")
	case kindOrchestration:
		return v.mayCall("runner_async", orchestrate)
	case kindRunner:
		return len(v.permitted("runner_async", runnersToRun())) > 0
	case kindWheel:
		return len(v.permitted("wheel", wheelToRun())) > 0
	}
	return false
}

// permitted returns the functions that the master would probably permit to the user.
func (v *visit) permitted(client string, functions []offer) []offer {
	return slices.DeleteFunc(functions, func(f offer) bool { return !v.mayCall(client, f.Name) })
}

// runnersToRun returns the runners that the form offers: those of the master but for those that only
// fill pages and those whose result nobody else may see.
func runnersToRun() (all []offer) {
	for name, doc := range runner.Docs("") {
		module, _, _ := strings.Cut(name, ".")
		if slices.Contains([]string{"presence", "audit", "appliance", "files", "auth"}, module) || runner.Private("runner."+name) {
			continue
		}
		all = append(all, offer{name, strings.TrimSpace(doc.About)})
	}

	for _, name := range []string{"mine.get", "salt.cmd", "salt.execute", "state.event", "state.orchestrate_show_sls"} {
		if !slices.ContainsFunc(all, func(f offer) bool { return f.Name == name }) {
			all = append(all, offer{Name: name})
		}
	}

	slices.SortFunc(all, func(a, b offer) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// wheelToRun returns the wheel functions that the form offers. It lacks those that accept, reject or
// delete keys: the page Keys shows which keys a pattern means, and asks.
func wheelToRun() []offer {
	return []offer{
		{"config.apply", "sets an option of the running master"},
		{"config.update_config", "writes a file of the configuration"},
		{"config.values", "shows the configuration"},
		{"file_roots.find", "finds a file that minions are served"},
		{"file_roots.read", "shows a file that minions are served"},
		{"file_roots.write", "writes a file that minions are served"},
		{"key.finger", "shows fingerprints"},
		{"key.finger_master", "shows the fingerprint of the master"},
		{"key.list_all", "lists all keys"},
		{"minions.connected", "lists the connected minions"},
		{"pillar_roots.read", "shows a file of the pillar"},
		{"pillar_roots.write", "writes a file of the pillar"},
	}
}

// usualFunctions returns functions of minions that the form offers before a minion has named its own.
func usualFunctions() []offer {
	return []offer{
		{"state.apply", "brings minions to the state that the files describe"},
		{"state.highstate", "the same, with all that top.sls assigns"},
		{"state.show_sls", "shows what a state file says for a minion"},
		{"state.show_top", "shows which state files are assigned"},
		{"test.ping", "asks whether minions answer"},
		{"test.version", "shows the version of Salt"},
		{"cmd.run", "runs a command of a shell"},
		{"disk.usage", "shows how full the disks are"},
		{"grains.items", "shows the facts about minions"},
		{"network.ip_addrs", "shows addresses"},
		{"pillar.items", "shows the data that minions are given"},
		{"pkg.install", "installs packages"},
		{"pkg.list_upgrades", "shows packages that can be upgraded"},
		{"pkg.upgrade", "upgrades packages"},
		{"pkg.version", "shows the version of a package"},
		{"saltutil.refresh_pillar", "has minions fetch their pillar"},
		{"saltutil.running", "shows what minions do now"},
		{"saltutil.sync_all", "has minions fetch own modules"},
		{"service.restart", "restarts a service"},
		{"service.status", "shows whether a service runs"},
		{"status.uptime", "shows since when minions run"},
		{"sys.doc", "shows documentation"},
		{"system.reboot", "reboots machines"},
	}
}

// takesStates reports whether the first argument of a function names state files.
func takesStates(fun string) bool {
	return slices.Contains([]string{"state.apply", "state.sls", "state.show_sls", "state.test", "state.sls_exists",
		"state.show_low_sls", "state.orchestrate", "state.orch", "state.orchestrate_show_sls"}, fun)
}

// obeysTest reports whether a function of minions changes nothing with test=True.
func obeysTest(fun string) bool {
	return slices.Contains([]string{"state.apply", "state.high", "state.highstate", "state.single", "state.sls",
		"state.sls_id", "state.test", "state.top"}, fun)
}

func (d *runPage) exampleFunction() string {
	switch d.Kind {
	case kindRunner:
		return "manage.status"
	case kindWheel:
		return "key.list_all"
	}
	return "test.ping"
}

// startOnMaster starts an orchestration, a runner or a wheel function, and returns the id of its
// run. problem names a fault of the form, or is "".
func (d *runPage) startOnMaster(ctx context.Context, v *visit) (jid, problem string, err error) {
	var got any
	fun := d.Fun
	switch d.Kind {
	case kindOrchestration:
		fun = orchestrate
		named := value.NewMap("mods", d.SLS)
		if strings.TrimSpace(d.Pillar) != "" {
			pillar := mapOf(d.Pillar)
			if pillar == nil {
				return "", "The pillar must be a map in YAML, as {version: 7} or lines such as version: 7.", nil
			}
			named.Set("pillar", pillar)
		}
		if d.Test {
			named.Set("test", true)
		}
		got, err = v.runCommand(ctx, "runner_async", fun, "kwarg", named)

	case kindRunner:
		got, err = v.runCommand(ctx, "runner_async", fun, "arg", value.List(d.argWords())) // salt-api parses the words

	case kindWheel:
		args, named := parsedArgs(d.argWords()), value.NewMap()
		if n := len(args); n > 0 {
			if m, ok := args[n-1].(*value.Map); ok && m.Value("__kwarg__") == true {
				args, named = args[:n-1], m.Clone()
				named.Delete("__kwarg__")
			}
		}
		got, err = v.runCommand(ctx, "wheel", fun, "arg", args, "kwarg", named)
	}

	if isUnauthorized(err) {
		return "", "", &Refusal{http.StatusForbidden,
			"The master refused: external_auth does not permit you " + briefName(fun) + "."}
	}
	if err != nil {
		return "", "", err
	}

	m, _ := got.(*value.Map)
	jid = m.Str("jid")
	if data := m.Map("data"); data != nil {
		jid = data.Str("jid")
	}

	if !jobs.Valid(jid) {
		return "", "The master did not start it: " + briefName(value.StrMax(got, maxName)), nil
	}

	return jid, "", nil
}

// mapOf returns the map that a text of YAML is, or nil.
func mapOf(text string) *value.Map {
	limits := saltyaml.Limits{Bytes: maxTarget, Depth: 30, Nodes: 10_000}
	v, err := saltyaml.DecodeWithin([]byte(text), "pillar", limits)
	if err != nil {
		return nil
	}
	m, _ := v.(*value.Map)
	return m
}

// documentOfMaster stores what the master tells of one of its functions in d.
func (d *runPage) documentOfMaster() {
	text := "The console knows no more about it: see Salt's documentation, or salt-run -d " + d.Fun + " on a node."
	if doc, ok := runner.Docs(d.Fun)[d.Fun]; ok && d.Kind == kindRunner {
		text = "Arguments: " + doc.Usage
		if doc.About != "" {
			text += "\n\n" + doc.About
		}
	}
	t := newBudget().boundedText(text)
	d.Doc = &t
}
