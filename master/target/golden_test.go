package target

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"saltern/master/value"
)

type minions map[string][2]*value.Map

func (m minions) Grains(id string) (*value.Map, bool) { d, ok := m[id]; return d[0], ok }
func (m minions) Pillar(id string) (*value.Map, bool) { d, ok := m[id]; return d[1], ok }

func (m minions) ids() []string {
	var ids []string
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

type goldenFile struct {
	Minions    map[string][2]any
	Nodegroups any
	Cases      [][4]any
}

func readGolden(t testing.TB) (minions, Env, [][4]any) {
	b, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}

	var g goldenFile
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&g); err != nil {
		t.Fatal(err)
	}

	m := make(minions)
	for id, d := range g.Minions {
		m[id] = [2]*value.Map{typed(t, d[0]).(*value.Map), typed(t, d[1]).(*value.Map)}
	}

	return m, Env{Nodegroups: typed(t, g.Nodegroups).(*value.Map), Source: m}, g.Cases
}

// typed reads the typed form that golden.py writes.
func typed(t testing.TB, v any) any {
	switch v := v.(type) {
	case json.Number:
		n, err := v.Int64()
		if err != nil {
			t.Fatal(err)
		}
		return n
	case []any:
		l := make([]any, len(v))
		for i := range v {
			l[i] = typed(t, v[i])
		}
		return l
	case map[string]any:
		if f, ok := v["float"]; ok {
			n, err := f.(json.Number).Float64()
			if err != nil {
				t.Fatal(err)
			}
			return n
		}

		m := &value.Map{}
		for _, kv := range v["map"].([]any) {
			m.Set(typed(t, kv.([]any)[0]), typed(t, kv.([]any)[1]))
		}

		return m
	}

	return v
}

// different lists the cases in which, deliberately, Salt selects a minion and Saltern does not, or
// the other way round.
var different = map[string]string{
	`["list","a,b",":"]`: "an id with a comma cannot be named in a list that is text; Salt's master does not find it either",
}

func TestGolden(t *testing.T) {
	m, env, cases := readGolden(t)
	ids := m.ids()
	for _, c := range cases {
		env.Delimiter = c[2].(string)
		want := []string{}
		for _, id := range c[3].([]any) {
			want = append(want, id.(string))
		}

		slices.Sort(want)
		got, _, err := Resolve(ids, c[1], c[0].(string), env)
		if got == nil {
			got = []string{}
		}

		name, _ := json.Marshal(c[:3])
		if different[string(name)] != "" {
			if slices.Equal(got, want) {
				t.Errorf("%s is no longer different", name)
			}
			continue
		}

		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, Salt selects %v (%v)", name, got, want, err)
		}
	}
}
