package runner

import (
	"slices"

	"saltern/master/value"
)

// Source: salt/runners/resource.py.
func resourceDefs() map[string]def {
	return map[string]def{
		"resource.show_grains": {"type id", showResourceGrains},
		"resource.list_grains": {"", listResourceGrains},
		"resource.refresh":     {"minion", refreshResources},
	}
}

// showResourceGrains returns the grains of one resource; they are empty when the resource is unknown.
func showResourceGrains(c *call) (any, error) {
	if err := requirePart("resources", c.Resources == nil); err != nil {
		return nil, err
	}

	r, ok := c.Resources.Find(c.textArgument("id"))
	if !ok {
		return value.NewMap(), nil
	}
	if grains, ok := c.Resources.Grains(r, c.textArgument("type")); ok {
		return grains, nil
	}
	return value.NewMap(), nil
}

// listResourceGrains returns the names of the grains of each resource, by TYPE:ID.
func listResourceGrains(c *call) (any, error) {
	if err := requirePart("resources", c.Resources == nil); err != nil {
		return nil, err
	}

	out := value.NewMap()
	for _, r := range c.Resources.All() {
		for _, typ := range r.Types {
			grains, ok := c.Resources.Grains(r, typ)
			if !ok {
				continue
			}

			names := grains.Keys()
			slices.Sort(names)
			out.Set(typ+":"+r.ID, value.NewMap("grain_keys", value.List(names), "grain_count", int64(len(names))))
		}
	}
	return out, nil
}

// refreshResources asks a minion to register its resources again, and returns whether the minion
// has received the request. Salt's runner fires its event on the master only, where no minion hears
// it.
func refreshResources(c *call) (any, error) {
	minion := c.textArgument("minion")
	if minion == "" {
		return false, nil
	}
	if err := requirePart("minions", c.Minions == nil || c.Events == nil); err != nil {
		return nil, err
	}

	if err := c.Events.Fire("minion/"+minion+"/resource_refresh", value.NewMap("minion", minion)); err != nil {
		return nil, err
	}

	answer, err := c.Minions.Ask(c.ctx, Question{
		Target:     []any{minion},
		TargetType: "list",
		Fun:        "event.fire",
		Arg:        []any{value.NewMap(), "resource_refresh"},
	})
	if err != nil {
		return nil, err
	}
	return answer.Returns[minion].Bool("return"), nil
}
