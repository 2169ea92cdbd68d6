package acl

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"saltern/master/value"
)

// fromJSON turns decoded JSON into what the codec would give.
func fromJSON(t *testing.T, d *json.Decoder) any {
	tok, err := d.Token()
	if err != nil {
		t.Fatal(err)
	}

	switch tok := tok.(type) {
	case json.Delim:
		if tok == '[' {
			l := []any{}
			for d.More() {
				l = append(l, fromJSON(t, d))
			}
			_, _ = d.Token()
			return l
		}

		m := value.NewMap()
		for d.More() {
			k := fromJSON(t, d)
			m.Set(k, fromJSON(t, d))
		}

		_, _ = d.Token()
		return m
	case json.Number:
		if n, err := tok.Int64(); err == nil {
			return n
		}

		f, err := tok.Float64()
		if err != nil {
			t.Fatal(err)
		}

		return f
	}

	return tok
}

func list(v any) (out []string) {
	for _, x := range v.([]any) {
		out = append(out, x.(string))
	}
	return out
}

// TestGolden compares with what Salt's CkMinions permits (testdata/golden.py).
// What is different on purpose is stricter: a target of no minions is
// refused (CVE-2022-22941), and calls of runners have named arguments only.
func TestGolden(t *testing.T) {
	b, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}

	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	g := fromJSON(t, d).(*value.Map)
	for _, c := range g.List("publish") {
		c := c.([]any)
		perms, want := c[0].([]any), c[4].(bool)
		got := Publish(perms, Request{Funs: list(c[1]), Args: c[2].([]any), Minions: list(c[3])}, resolve)
		if len(list(c[3])) == 0 && want && !got {
			continue
		}

		if got != want {
			t.Errorf("publish %s: got %v, Salt %v", show(c[:4]), got, want)
		}
	}

	for _, c := range g.List("special") {
		c := c.([]any)
		want := c[4].(bool)
		got := Special(c[0].([]any), c[3].(string), c[1].(string), c[2].(*value.Map).List("arg"),
			c[2].(*value.Map).Map("kwarg"))
		if got != want {
			t.Errorf("special %s: got %v, Salt %v", show(c[:4]), got, want)
		}
	}

	for _, c := range g.List("fill") {
		c := c.([]any)
		got := FillAuthList(c[0].(*value.Map), c[1].(string), list(c[2]), false)
		if g, w := show(got), show(c[3].([]any)); g != w {
			t.Errorf("fill %s: got %s, Salt %s", show(c[:3]), g, w)
		}
	}
}

func show(l []any) string {
	var b strings.Builder
	for _, v := range l {
		switch v := v.(type) {
		case *value.Map:
			b.WriteString("{")
			for k, x := range v.All() {
				b.WriteString(show([]any{k, x}))
			}
			b.WriteString("} ")
		case []any:
			b.WriteString("[" + show(v) + "] ")
		default:
			j, _ := json.Marshal(v)
			b.Write(j)
			b.WriteString(" ")
		}
	}

	return b.String()
}
