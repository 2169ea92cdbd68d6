package runner

// reactorDefs returns the runners of Salt's module reactor. Source: salt/runners/reactor.py. Salt's
// runners call the reactor with events that carry the key of the master's user. The functions here
// call the reactor directly, so that the key appears on no bus and no terminal.
func reactorDefs() map[string]def {
	return map[string]def{
		"reactor.list": {"saltenv= test=", withReactor(func(c *call) any { return c.Reactor.All() })},
		"reactor.add": {"event reactors saltenv= test=",
			withReactor(func(c *call) any { return c.Reactor.Add(c.textArgument("event"), c.values["reactors"]) })},
		"reactor.delete": {"event saltenv= test=",
			withReactor(func(c *call) any { return c.Reactor.Delete(c.textArgument("event")) })},
		"reactor.is_leader":  {"", withReactor(func(c *call) any { return c.Reactor.Leads() })},
		"reactor.set_leader": {"value=", withReactor(setLeader)},
	}
}

func withReactor(ask func(*call) any) func(*call) (any, error) {
	return func(c *call) (any, error) {
		if err := requirePart("reactor", c.Reactor == nil); err != nil {
			return nil, err
		}
		return ask(c), nil
	}
}

func setLeader(c *call) any {
	c.Reactor.Lead(c.flagArgument("value", true))
	return c.Reactor.Leads()
}
