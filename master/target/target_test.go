package target

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/pattern"
	"saltern/master/value"
)

func TestRefused(t *testing.T) {
	groups := value.NewMap("a", "N@b or x", "b", "N@a or y", "self", "N@self", "num", int64(5))
	var wide strings.Builder
	groups.Set("w0", strings.Repeat("x or ", 50)+"x")
	for i := 1; i < 20; i++ {
		groups.Set(fmt.Sprintf("w%d", i), fmt.Sprintf("N@w%d or N@w%d", i-1, i-1))
	}

	for i := range 2000 {
		fmt.Fprintf(&wide, "( x%d or ", i)
	}

	for _, c := range []struct {
		tgt  any
		typ  string
		want error
	}{
		{"%cluster", "range", errUnsupported},
		{"x", "resource", errUnsupported},
		{"R@%x", "compound", errUnsupported},
		{"x", "data", errUnsupported},
		{"(", "pcre", errInvalid},
		{"E@(", "compound", errInvalid},
		{"( web1", "compound", errInvalid},
		{"web1 )", "compound", errInvalid},
		{"web1 web2", "compound", errInvalid},
		{"", "compound", errInvalid},
		{"N@nosuch", "compound", errInvalid},
		{"web1 or N@nosuch", "compound", errInvalid},
		{"N@nosuch not web1", "compound", errInvalid},
		{"N@a", "compound", errInvalid},
		{"a", "nodegroup", errInvalid},
		{"self", "nodegroup", errInvalid},
		{"num", "nodegroup", errInvalid},
		{"w19", "nodegroup", errInvalid},
		{wide.String(), "compound", errInvalid},
		{strings.Repeat("x or ", 20000) + "x", "compound", errInvalid},
		{"10.0.0.1/8", "ipcidr", errInvalid},
		{"host", "ipcidr", errInvalid},
		{int64(5), "glob", errInvalid},
		{[]any{"a"}, "glob", errInvalid},
		{[]any{int64(1)}, "list", errInvalid},
		{value.NewMap("a", "b"), "compound", errInvalid},
		{strings.Repeat("x", maxTarget+1), "glob", errInvalid},
		{"a" + strings.Repeat(":a", 200), "grain", errInvalid},
	} {
		if _, err := Compile(c.tgt, c.typ, Env{Nodegroups: groups}); !errors.Is(err, c.want) {
			t.Errorf("%.60v as %s: %v, want %v", c.tgt, c.typ, err, c.want)
		} else if len(err.Error()) > 400 {
			t.Errorf("%s: error of %d bytes", c.typ, len(err.Error()))
		}
	}
}

func TestResolve(t *testing.T) {
	src := minions{"a1": {value.NewMap("os", "x"), nil}, "a2": {value.NewMap("os", "y"), nil}}
	ids := []string{"a1", "a2", "b1"}
	env := Env{Source: src, Nodegroups: value.NewMap("g", "a1,gone", "l", []any{"b1", "a2"})}
	for _, c := range []struct {
		tgt              any
		typ              string
		matched, missing []string
	}{
		{"*", "glob", ids, nil},
		{"*", "", ids, nil},
		{"a1", "glob", []string{"a1"}, nil},
		{"gone", "glob", nil, nil},
		{nil, "glob", nil, nil},
		{"b1,a1,gone,a1,gone", "list", []string{"a1", "b1"}, []string{"gone"}},
		{[]string{"b1", "x y"}, "list", []string{"b1"}, []string{"x y"}},
		{"L@a1,gone or b*", "compound", []string{"a1", "b1"}, []string{"gone"}},
		{"b* and not L@a1,gone", "compound", []string{"b1"}, nil},
		{"L@a1,gone", "compound", []string{"a1"}, []string{"gone"}},
		{"b1", "compound", []string{"b1"}, nil},
		{"g", "nodegroup", []string{"a1"}, []string{"gone"}},
		{"l", "nodegroup", []string{"a2", "b1"}, nil},
		{"os:*", "grain", []string{"a1", "a2"}, nil},
		{"not G@os:x", "compound", []string{"a2", "b1"}, nil},
		{"I@a:b", "compound", nil, nil},
		{"J@a:b", "compound_pillar_exact", nil, nil},
	} {
		matched, missing, err := Resolve(ids, c.tgt, c.typ, env)
		if err != nil || !slices.Equal(matched, c.matched) || !slices.Equal(missing, c.missing) {
			t.Errorf("%v as %s: %v, missing %v (%v), want %v, missing %v", c.tgt, c.typ, matched, missing,
				err, c.matched, c.missing)
		}
	}

	if _, _, err := Resolve(ids, "os:x", "grain", Env{}); err != nil {
		t.Errorf("no source: %v", err)
	}
}

func TestPillarExactInCompound(t *testing.T) {
	src := minions{"a": {nil, value.NewMap("role", "web")}}
	for _, c := range []struct {
		tgt, typ string
		want     bool
	}{
		{"I@role:w*", "compound", true}, {"I@role:w*", "compound_pillar_exact", false},
		{"I@role:web", "compound_pillar_exact", true}, {"J@role:w.b", "compound_pillar_exact", false},
		{"not I@role:w*", "compound_pillar_exact", true},
	} {
		m, err := Compile(c.tgt, c.typ, Env{Source: src})
		if err != nil || m.Match("a") != c.want {
			t.Errorf("%s as %s: %v (%v), want %v", c.tgt, c.typ, m.Match("a"), err, c.want)
		}
	}
}

// Row 17: a pattern in a minion's own query must not keep the master busy with data that the same
// minion sent.
func TestAttack17ExpensiveGrains(t *testing.T) {
	deep := value.NewMap("x", "y")
	for range 40 {
		deep = value.NewMap("a", deep, "b", deep, "*", deep, "aa", deep)
	}

	wide := []any{}
	for range 2000 {
		wide = append(wide, []any{strings.Repeat("x", 1<<16)})
	}

	deep.Set("wide", wide)
	src := minions{"evil": {deep, deep}}
	for _, expr := range []string{
		strings.Repeat("*:", 50) + "nothing",
		strings.Repeat("a:", 50) + "nothing",
		strings.Repeat("*:a:", 20) + "nothing",
		"wide:nothing",
		"*:wide:nothing",
	} {
		for _, typ := range []string{"grain", "grain_pcre", "pillar_exact"} {
			m, err := Compile(expr, typ, Env{Source: src})
			if err != nil {
				t.Fatal(err)
			}

			start := time.Now()
			if m.Match("evil") {
				t.Errorf("%s %.20s matches", typ, expr)
			}

			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("%s %.20s took %v", typ, expr, d)
			}
		}
	}
}

func TestGlobMatch(t *testing.T) {
	parts := []string{"", "a", "b", "ab", "*", "é"}
	var words []string
	for _, x := range parts {
		for _, y := range parts {
			for _, z := range parts {
				words = append(words, x+y+z, x+y+"*"+z)
			}
		}
	}

	for _, p := range words {
		for _, s := range words {
			if got, want := globMatch(p, s), pattern.Glob(p, s); got != want {
				t.Fatalf("%q with %q: %v, want %v", p, s, got, want)
			}
		}
	}
}

func TestNamesAreLookedUp(t *testing.T) {
	for _, c := range []struct {
		tgt any
		typ string
	}{{"m5000", "glob"}, {"m5000", "compound"}, {"m1,m2", "list"}, {"L@m1,m2", "compound"}} {
		m, err := Compile(c.tgt, c.typ, Env{})
		if err != nil || !m.exactly {
			t.Errorf("%v as %s walks over all keys (%v)", c.tgt, c.typ, err)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	m, env, _ := readGolden(t)
	c, err := Compile("G@os:Debian and not I@role:web or E@web[0-9]", "compound", env)
	if err != nil {
		t.Fatal(err)
	}

	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, id := range m.ids() {
				for range 50 {
					c.Match(id)
				}
			}
		})
	}

	wg.Wait()
}

func TestTraverse(t *testing.T) {
	data := value.NewMap("a", []any{int64(1), value.NewMap("b", "c", int64(0), "zero")}, "t",
		value.NewMap(true, "yes", nil, "none"))
	for _, c := range []struct {
		path string
		want any
		ok   bool
	}{
		{"a:1:b", "c", true}, {"a:b", "c", true}, {"a:0", "zero", true}, {"a:-2", int64(1), true}, {"a:2", nil, false},
		{"t:True", "yes", true}, {"t:1", "yes", true}, {"t:None", "none", true}, {"t:null", "none", true}, {"a:b:c", nil, false}, {"", nil, false},
	} {
		if got, ok := Traverse(data, c.path, ":"); ok != c.ok || got != c.want {
			t.Errorf("%s: %v %v, want %v %v", c.path, got, ok, c.want, c.ok)
		}
	}
}

func FuzzResolve(f *testing.F) {
	m, env, cases := readGolden(f)
	ids := m.ids()
	for _, c := range cases {
		if s, ok := c[1].(string); ok {
			f.Add(s, c[0].(string), c[2].(string))
		}
	}

	f.Fuzz(func(t *testing.T, tgt, typ, delimiter string) {
		watch := time.AfterFunc(10*time.Second, func() { panic(fmt.Sprintf("still busy with %.300q as %s", tgt, typ)) })
		defer watch.Stop()
		env := env
		env.Delimiter = delimiter
		matched, _, err := Resolve(ids, tgt, typ, env)
		if err != nil {
			if !errors.Is(err, errInvalid) && !errors.Is(err, errUnsupported) {
				t.Fatalf("%v", err)
			}
			return
		}

		c, err := Compile(tgt, typ, env)
		if err != nil {
			t.Fatal(err)
		}

		for _, id := range ids {
			if c.Match(id) != slices.Contains(matched, id) {
				t.Fatalf("%q as %s: Match and Resolve differ about %s", tgt, typ, id)
			}
		}
	})
}

func BenchmarkResolve(b *testing.B) {
	src := minions{}
	var ids []string
	for i := range 10000 {
		id := fmt.Sprintf("m%05d.example.com", i)
		ids = append(ids, id)
		src[id] = [2]*value.Map{value.NewMap("os", "Debian", "n", int64(i), "roles", []any{"a", "b"}), nil}
	}

	for _, c := range []struct{ name, tgt, typ string }{
		{"name", "m05000.example.com", "glob"}, {"star", "*", "glob"}, {"glob", "m0*.example.com", "glob"}, {"pcre", `m0\d+`, "pcre"},
		{"list", "m00001.example.com,m00002.example.com", "list"}, {"grain", "os:Deb*", "grain"}, {"compound", "G@roles:b and not m00*", "compound"},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if _, _, err := Resolve(ids, c.tgt, c.typ, Env{Source: src}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
