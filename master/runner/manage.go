package runner

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"saltern/master/value"
)

const pingParams = "tgt= tgt_type= timeout= gather_job_timeout="

// manageDefs returns the runners of Salt's module manage. Sources: salt/runners/manage.py.
func manageDefs() map[string]def {
	defs := map[string]def{
		"manage.status": {"output= " + pingParams, func(c *call) (any, error) {
			up, down, err := c.pingMinions()
			return value.NewMap("up", anyList(up), "down", anyList(down)), err
		}},
		"manage.up": {pingParams, func(c *call) (any, error) {
			up, _, err := c.pingMinions()
			return anyList(up), err
		}},
		"manage.down":     {"removekeys= " + pingParams, manageDown},
		"manage.versions": {"", manageVersions},
	}

	// In Salt all of the following names have had the same function since 2015.
	for _, name := range []string{"present", "joined", "allowed", "alived", "reaped"} {
		defs["manage."+name] = def{"subset= show_ip=", listState}
		defs["manage.not_"+name] = def{"subset= show_ip=", listNotState}
	}

	defs["manage.list_state"] = def{"subset= show_ip=", listState}
	defs["manage.list_not_state"] = def{"subset= show_ip=", listNotState}
	return defs
}

// pingMinions pings the minions of the target. up holds the minions that answer and down those that
// do not.
func (c *call) pingMinions() (up, down []string, err error) {
	if err := requirePart("minions", c.Minions == nil); err != nil {
		return nil, nil, err
	}

	q := Question{Target: c.values["tgt"], TargetType: c.textOr("tgt_type", "glob"), Fun: "test.ping"}
	if !value.Truth(q.Target) {
		q.Target = "*"
	}

	if q.Timeout, err = c.seconds("timeout"); err != nil {
		return nil, nil, err
	}

	if q.Gather, err = c.seconds("gather_job_timeout"); err != nil {
		return nil, nil, err
	}

	a, err := c.Minions.Ask(c.ctx, q)
	if err != nil {
		return nil, nil, err
	}

	up = sortedKeys(a.Returns)
	for _, id := range a.Expected {
		if a.Returns[id] == nil {
			down = append(down, id)
		}
	}

	slices.Sort(down)
	return up, down, nil
}

func manageDown(c *call) (any, error) {
	_, down, err := c.pingMinions()
	if err != nil {
		return nil, err
	}

	if c.flagArgument("removekeys", false) {
		if err := requirePart("keys", c.Keys == nil); err != nil {
			return nil, err
		}

		accepted := c.Keys.Accepted()
		for _, id := range down {
			if !slices.Contains(accepted, id) { // it is below a syndic
				continue
			}
			if err := c.Keys.Delete(id); err != nil {
				return nil, err
			}
		}
	}

	return anyList(down), nil
}

func (c *call) connected() (map[string]string, error) {
	if err := requirePart("presence", c.Presence == nil); err != nil {
		return nil, err
	}

	all := c.Presence.Connected()
	subset := splitInput(orNil(c.values["subset"]))
	if subset == nil {
		return all, nil
	}

	out := map[string]string{}
	for _, id := range subset {
		if ip, ok := all[id]; ok {
			out[id] = ip
		}
	}

	return out, nil
}

func listState(c *call) (any, error) {
	m, err := c.connected()
	if err != nil {
		return nil, err
	}
	if c.flagArgument("show_ip", false) {
		return sortedMap(m), nil
	}
	return anyList(sortedKeys(m)), nil
}

func listNotState(c *call) (any, error) {
	if err := requirePart("keys", c.Keys == nil); err != nil {
		return nil, err
	}

	m, err := c.connected()
	if err != nil {
		return nil, err
	}

	subset := splitInput(orNil(c.values["subset"]))
	out := []any{}
	for _, id := range c.Keys.Accepted() {
		if _, ok := m[id]; !ok && (subset == nil || slices.Contains(subset, id)) {
			out = append(out, id)
		}
	}

	return out, nil
}

func manageVersions(c *call) (any, error) {
	if err := requirePart("minions", c.Minions == nil); err != nil {
		return nil, err
	}

	a, err := c.Minions.Ask(c.ctx, Question{Target: "*", TargetType: "glob", Fun: "test.version"})
	if err != nil {
		return nil, err
	}

	groups := map[string]*value.Map{}
	ids := append(slices.Clone(a.Expected), sortedKeys(a.Returns)...)
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		label, v := "Minion offline", any(false)
		if ret := a.Returns[id]; ret != nil && !value.Truth(get(ret, "retcode")) {
			s := ret.Str("return")
			v = s
			label = [...]string{"Minion requires update", "Up to date", "Minion newer than master"}[compareVersions(s, c.Version)+1]
		}

		if groups[label] == nil {
			groups[label] = &value.Map{}
		}

		groups[label].Set(id, v)
	}

	out := &value.Map{}
	for _, label := range []string{"Up to date", "Minion requires update", "Minion newer than master",
		"Minion offline"} {
		if groups[label] != nil {
			out.Set(label, groups[label])
		}
	}

	out.Set("Master", c.Version)
	return out, nil
}

// compareVersions compares Salt versions such as 3006.28, 3008.0rc1 and 3007.1+12.gabc by their
// numbers. A release is newer than its candidates, and a version with commits after a release is
// newer than the release.
func compareVersions(a, b string) int {
	x, y := parseVersion(a), parseVersion(b)
	for i := range x {
		if d := cmp.Compare(x[i], y[i]); d != 0 {
			return d
		}
	}
	return 0
}

func parseVersion(s string) (v [6]int) {
	base, commits, _ := strings.Cut(strings.TrimPrefix(s, "v"), "+")
	v[4] = 1 << 30 // so that a release is newer than its candidates
	if i := strings.Index(base, "rc"); i > 0 {
		v[4], _ = strconv.Atoi(base[i+2:])
		base = base[:i]
	}

	for i, p := range strings.SplitN(base, ".", 5) {
		if i < 4 {
			v[i], _ = strconv.Atoi(p)
		}
	}

	n, _, _ := strings.Cut(commits, ".")
	v[5], _ = strconv.Atoi(n)
	return v
}
