package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"saltern/master/pattern"
	"saltern/master/runner"
	"saltern/master/value"
)

// minion describes a key, and the minion with that key as far as the master knows it.
type minion struct {
	ID, Key, Address string
	Seen             moment
	Connected        bool    // the minion is connected to this master
	heard            float64 // time of the minion's last authenticated request, in Unix seconds; 0: never
}

// minionsOf returns all minions that have a key (the runner presence.minions).
func minionsOf(ctx context.Context, v *visit) ([]minion, error) {
	got, err := v.runCommand(ctx, "runner", "presence.minions")
	if err != nil {
		return nil, err
	}

	m, ok := got.(*value.Map)
	if !ok {
		return nil, &Refusal{http.StatusBadGateway,
			"The master does not know the runner presence.minions: " + briefName(value.StrMax(got, maxName))}
	}

	var out []minion
	for _, e := range m.List("minions") {
		x, _ := e.(*value.Map)
		n := minion{
			ID:        x.Str("id"),
			Key:       x.Str("key"),
			Address:   briefName(x.Str("address")),
			Connected: x.Value("connected") == true,
		}

		if s, ok := x.Value("seen").(float64); ok && s > 0 && s < 1e11 {
			n.Seen, n.heard = momentAt(v.now, time.UnixMilli(int64(s*1e3))), s
		}

		out = append(out, n)
	}

	placeSubscriptions(out, m.Map("subscriptions"))
	slices.SortFunc(out, func(a, b minion) int {
		return cmp.Or(cmp.Compare(strings.ToLower(a.ID), strings.ToLower(b.ID)), cmp.Compare(a.ID, b.ID))
	})

	return out, nil
}

// placeSubscriptions marks minions as connected for subscriptions without an id. For each address
// with n subscriptions it marks the n minions that sent a request most recently.
func placeSubscriptions(all []minion, subscriptions *value.Map) {
	slots := map[string]int64{}
	for _, from := range subscriptions.Keys() {
		slots[from], _ = subscriptions.Int(from)
	}
	slices.SortFunc(all, func(a, b minion) int { return cmp.Compare(b.heard, a.heard) })
	for i := range all {
		if m := &all[i]; m.Key == "accepted" && !m.Connected && m.heard > 0 && slots[m.Address] > 0 {
			slots[m.Address]--
			m.Connected = true
		}
	}
}

// minionsByID returns the known minions by id. The map is empty if the user may not see them.
func minionsByID(ctx context.Context, v *visit) map[string]minion {
	out := map[string]minion{}
	if !v.mayCall("runner", "presence.minions") {
		return out
	}
	all, err := minionsOf(ctx, v)
	if err != nil {
		return out
	}
	for _, m := range all {
		out[m.ID] = m
	}
	return out
}

// targetType is a type of target, with a text for it.
type targetType struct{ Name, Word string }

func targetTypes() []targetType {
	return []targetType{
		{"glob", "name (glob)"},
		{"list", "list of names"},
		{"pcre", "name (regular expression)"},
		{"grain", "grain"},
		{"grain_pcre", "grain (regular expression)"},
		{"pillar", "pillar"},
		{"nodegroup", "node group"},
		{"ipcidr", "address or network"},
		{"compound", "compound"},
	}
}

func knownType(name string) bool {
	return slices.ContainsFunc(targetTypes(), func(t targetType) bool { return t.Name == name })
}

// target holds target and type of a form.
type target struct {
	Target, Type string
	Types        []targetType
}

func targetOf(get func(string) string) target {
	t := target{strings.TrimSpace(cutText(get("tgt"), maxTarget)), cmp.Or(get("type"), "glob"), targetTypes()}
	if !knownType(t.Type) {
		t.Type = "glob"
	}
	return t
}

// targetValue returns the target in the form that functions take.
func (t target) targetValue() any {
	if t.Type == "list" {
		return value.List(strings.FieldsFunc(t.Target, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }))
	}
	return t.Target
}

// matched returns the ids that a target selects. The console itself compares names; for all other
// targets it asks the master.
func (t target) matched(ctx context.Context, v *visit, accepted []minion) (map[string]bool, error) {
	out := map[string]bool{}
	switch t.Type {
	case "glob":
		for _, m := range accepted {
			if pattern.Glob(cmp.Or(t.Target, "*"), m.ID) {
				out[m.ID] = true
			}
		}
		return out, nil
	case "list":
		for _, id := range t.targetValue().([]any) {
			out[id.(string)] = true
		}
		return out, nil
	}

	got, err := v.runCommand(ctx, "runner", "cache.grains", "tgt", t.targetValue(), "tgt_type", t.Type,
		runner.Only, "id", runner.Alone, true)
	if err != nil {
		return nil, err
	}

	m, ok := got.(*value.Map)
	if !ok {
		return nil, &Refusal{http.StatusBadRequest,
			"The master cannot read the target: " + briefName(value.StrMax(got, maxName))}
	}

	for _, id := range m.Keys() {
		out[id] = true
	}

	return out, nil
}

// grainsOf returns the cached grains of minions, or nil if the user may not see them.
func grainsOf(ctx context.Context, v *visit, list []minion) (*value.Map, error) {
	if len(list) == 0 || !v.mayCall("runner", "cache.grains") {
		return nil, nil
	}
	ids := []any{}
	for _, m := range list {
		ids = append(ids, m.ID)
	}
	got, err := v.runCommand(ctx, "runner", "cache.grains", "tgt", ids, "tgt_type", "list", runner.Alone, true)
	if isUnauthorized(err) {
		return nil, nil // the master refuses the user after all
	}
	m, _ := got.(*value.Map)
	return m, err
}

// addresses returns up to three of a minion's addresses, from its grains, as a text.
func addresses(g *value.Map) string {
	var out []string
	for _, e := range append(slices.Clone(g.Texts("ipv4")), g.Texts("ipv6")...) {
		if e == "127.0.0.1" || e == "::1" {
			continue
		}
		if len(out) == 3 {
			out = append(out, "…")
			break
		}
		out = append(out, briefName(cutText(e, 60)))
	}
	return strings.Join(out, " ")
}

type grain struct {
	Name  string
	Value boundText
}

// grainValue returns a value of grains or a pillar as a text: a list of plain values in one line, in which the
// dashes of YAML could not be taken for a part of them.
func grainValue(v any) string {
	list, ok := v.([]any)
	if !ok || len(list) == 0 || len(list) > maxInLine {
		return plainText(v)
	}
	var words []string
	for _, e := range list {
		text, isText := e.(string)
		if !isText || text == "" || strings.ContainsAny(text, ",\n") {
			return plainText(v)
		}
		words = append(words, text)
	}
	return strings.Join(words, ", ")
}

// maxInLine is how many values of a list stand in one line.
const maxInLine = 8

// values returns the top level of an untrusted map within the bounds, sorted and without the
// excluded keys. more is the number of entries left out.
func values(m *value.Map, b *budget, excluded ...string) (out []grain, more int) {
	names := slices.DeleteFunc(m.Keys(), func(k string) bool { return slices.Contains(excluded, k) })
	slices.Sort(names)
	for _, k := range names[:min(len(names), maxGrains)] {
		out = append(out, grain{briefName(k), b.boundedText(grainValue(m.Value(k)))})
	}
	return out, max(0, len(names)-maxGrains)
}
