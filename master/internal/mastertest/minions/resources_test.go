package minions

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"saltern/master/event"
	"saltern/master/internal/launch"
	"saltern/master/internal/mastertest"
	"saltern/master/runner"
	"saltern/master/value"
)

// These are tests of the resources of minions (finding F5).

// registerDummies registers the resources d1 and d2 of the type dummy, and web01 of two types.
func registerDummies(n *mastertest.Minion) {
	n.Ask("_register_resources",
		"resources", value.NewMap("dummy", []any{"d1", "d2", "web01"}, "ssh", []any{"web01"}),
		"resource_grains", value.NewMap(
			"dummy:d1", value.NewMap("os", "Dummy", "rack", int64(1)),
			"dummy:d2", value.NewMap("os", "Dummy", "rack", int64(2)),
			"ssh:web01", value.NewMap("os", "Debian"),
		))
}

// idsOf returns the minions and resources of a job.
func idsOf(load *value.Map) []string { return load.Texts("minions") }

// TestResourceIsTargetedAndReturns: what a minion registers is a target, and its return is kept and
// announced under the id of the resource.
func TestResourceIsTargetedAndReturns(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	n := r.AcceptedMinion("web1", "min6")
	r.AcceptedMinion("db1", "min7")
	registerDummies(n)

	for _, c := range []struct {
		tgt, typ, fun string
		want          []string
	}{
		{"d1", "glob", "test.ping", []string{"d1"}},
		{"T@dummy", "compound", "test.ping", []string{"d1", "d2", "web01"}},
		{"T@dummy:d2", "compound", "test.ping", []string{"d2"}},
		{"*", "glob", "test.ping", []string{"db1", "web1", "d1", "d2", "web01"}},
		{"db*", "glob", "test.ping", []string{"db1"}},
		{"*", "glob", "state.apply", []string{"db1", "web1"}},
		{"T@dummy and not d1", "compound", "state.apply", []string{"d1", "d2", "web01"}},
		{"d1,db1", "list", "test.ping", []string{"db1", "d1"}},
		{"d1,db1", "list", "saltutil.find_job", []string{"db1"}},
		{"os:Debian", "grain", "test.ping", []string{"web01"}},
		{"M@web1", "compound", "test.ping", []string{"web1"}},
	} {
		if got := idsOf(r.Publish(c.tgt, c.fun, "tgt_type", c.typ)); !slices.Equal(got, c.want) {
			t.Errorf("%s %q %s: %v, want %v", c.typ, c.tgt, c.fun, got, c.want)
		}
	}

	r.ListenToBus()
	jid := r.Publish("d1", "test.ping").Str("jid")
	n.Ask("_return", "jid", jid, "fun", "test.ping", "return", "of d1", "resource_id", "d1")
	tag := event.Tag("job", jid, "ret", "d1")
	if !slices.ContainsFunc(r.NewEvents(), func(e event.Event) bool {
		_, marked := e.Data.Get("resource_id")
		return e.Tag == tag && e.Data.Str("id") == "d1" && e.Data.Str("return") == "of d1" && !marked
	}) {
		t.Errorf("no event %s", tag)
	}

	n.Ask("_register_resources", "resources", value.NewMap(), "resource_grains", value.NewMap())
	if got := idsOf(r.Publish("*", "test.ping")); !slices.Equal(got, []string{"db1", "web1"}) {
		t.Errorf("resources that are no longer registered are targets: %v", got)
	}
}

// TestResourceOfAnotherMinion: a minion returns for no other minion, and for no resource of another
// one. Salt's master keeps such a return under the name that the minion gives.
func TestResourceOfAnotherMinion(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	web, db := r.AcceptedMinion("web1", "min6"), r.AcceptedMinion("db1", "min7")
	registerDummies(web)
	db.Ask("_register_resources", "resources", value.NewMap("dummy", []any{"web1", "d1", "../x", "own", "a,b", int64(5)}),
		"resource_grains", value.NewMap())
	if got := idsOf(r.Publish("T@dummy", "test.ping", "tgt_type", "compound")); !slices.Equal(got, []string{"d1", "d2", "own", "web01"}) {
		t.Errorf("resources %v", got)
	}

	r.ListenToBus()
	jid := r.Publish("*", "test.ping").Str("jid")
	for _, id := range []any{"web1", "d1", "a,b", "nosuch", "", nil, int64(5)} {
		db.Ask("_return", "jid", jid, "fun", "test.ping", "return", "forged", "resource_id", id)
	}
	for _, e := range r.NewEvents() {
		if strings.HasPrefix(e.Tag, event.Tag("job", jid, "ret")) {
			t.Errorf("%s: %v", e.Tag, e.Data.Value("return"))
		}
	}

	// When the first one no longer has it, the resource belongs to the other.
	web.Ask("_register_resources", "resources", value.NewMap(), "resource_grains", value.NewMap())
	db.Ask("_return", "jid", jid, "fun", "test.ping", "return", true, "resource_id", "d1")
	if tags := mastertest.TagsOf(r.NewEvents()); !slices.Contains(tags, event.Tag("job", jid, "ret", "d1")) {
		t.Errorf("no return of d1 by its new minion: %v", tags)
	}
}

// TestResourceNeedsPermission: who may call a function on one resource may call it on no other, and
// his wildcards select the minions alone.
func TestResourceNeedsPermission(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	registerDummies(r.AcceptedMinion("web1", "min6"))
	r.AcceptedMinion("web2", "min7")

	for _, c := range []struct {
		permission, tgt, typ string
		want                 string // target of the publication; "": refused
	}{
		{"d1", "d1", "glob", "[d1]"},
		{"d1", "d2", "glob", ""},
		{"d1", "T@dummy", "compound", ""},
		{"T@dummy", "T@dummy", "compound", "[d1 d2 web01]"},
		{"T@ssh", "T@dummy", "compound", ""},
		{"web*", "web*", "glob", "[web1 web2]"},
		{"web*", "d1", "glob", ""},
		{"*", "*", "glob", "*"},
		{"*", "d1", "glob", "[d1]"},
		{"G@os:Debian", "os:Debian", "grain", "[web01]"},
	} {
		load := value.NewMap("fun", "test.ping", "arg", []any{}, "tgt", c.tgt, "tgt_type", c.typ, "ret", "", "jid", "")
		j, err := r.Parts.Launch.New(t.Context(), load)
		if err != nil {
			t.Fatal(err)
		}

		permissions := []any{value.NewMap(c.permission, []any{"test.ping"})}
		got := ""
		if r.Parts.Launch.Permit(nil, j, launch.Caller{Permissions: permissions}) == nil {
			got = fmt.Sprint(r.Parts.Launch.Publication(j).Value("tgt"))
		}
		if got != c.want {
			t.Errorf("permission for %s, target %s: %q, want %q", c.permission, c.tgt, got, c.want)
		}
	}
}

// resourceTargets returns n generated targets of the types by which resources are selected.
func resourceTargets(n int) []*value.Map {
	rnd := rand.New(rand.NewPCG(5, 3))
	pick := func(l ...string) string { return l[rnd.IntN(len(l))] }
	grain := func() string {
		return pick("os:Dummy", "os:d*", "rack:1", "rack:[12]", "os:Debian", "nosuch:x", "os", "os:*")
	}
	term := func() string {
		switch rnd.IntN(7) {
		case 0:
			return "T@" + pick("dummy", "ssh", "nosuch", "dummy:d1", "ssh:web01", "dummy:web01", "ssh:d1", "dummy:")
		case 1:
			return pick("G@", "P@") + grain()
		case 2:
			return "L@" + pick("d1,d2", "web01", "nosuch,d1", "d1,,")
		case 3:
			return "E@" + pick("d.", "web01", "d[12]$", ".*")
		case 4:
			return pick("M@web1", "I@a:b", "S@10.0.0.0/8", "d1", "web*", "G;@os;Dummy")
		}
		return "T@" + pick("dummy", "ssh")
	}

	var out []*value.Map
	for range n {
		typ := pick("compound", "compound", "compound", "list", "grain", "grain_pcre", "glob")
		tgt := ""
		switch typ {
		case "list":
			tgt = pick("d1,d2", "web01,nosuch", "d1", "d1,d1,web1")
		case "grain", "grain_pcre":
			tgt = grain()
		case "glob":
			tgt = pick("d1", "web01", "nosuch", "*", "web?")
		default:
			tgt = pick("", "", "not ") + term()
			for range rnd.IntN(3) {
				tgt += pick(" and ", " or ", " and not ", " or not ") + term()
			}
			if rnd.IntN(4) == 0 {
				tgt = "( " + tgt + " )"
			}
		}
		out = append(out, value.NewMap("fun", pick("test.ping", "saltutil.find_job"), "arg", []any{}, "tgt", tgt,
			"tgt_type", typ, "ret", "", "jid", ""))
	}
	return out
}

// TestResourcesOfATargetAreThoseOfSaltsMinion: the master expects the returns of exactly those
// resources on which a minion of 3008.3 runs the job.
func TestResourcesOfATargetAreThoseOfSaltsMinion(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	registerDummies(r.AcceptedMinion("web1", "min6"))

	type job struct {
		Tgt string `json:"tgt"`
		Typ string `json:"tgt_type"`
		Fun string `json:"fun"`
	}
	var jobs []job
	var ours [][]string
	for _, load := range resourceTargets(2000) {
		j, err := r.Parts.Launch.New(t.Context(), load)
		if err != nil {
			t.Fatalf("%s: %v", load.Str("tgt"), err)
		}
		jobs = append(jobs, job{load.Str("tgt"), load.Str("tgt_type"), load.Str("fun")})
		ours = append(ours, slices.DeleteFunc(slices.Sorted(slices.Values(j.Minions)), func(id string) bool { return id == "web1" }))
	}

	var salts [][]string
	mastertest.AskSalt(t, mastertest.TestData(t, "findings", "resources.py"), map[string]any{
		"Resources": map[string][]string{"dummy": {"d1", "d2", "web01"}, "ssh": {"web01"}},
		"Grains": map[string]any{
			"dummy:d1":  map[string]any{"os": "Dummy", "rack": 1},
			"dummy:d2":  map[string]any{"os": "Dummy", "rack": 2},
			"ssh:web01": map[string]any{"os": "Debian"},
		},
		"Jobs": jobs,
	}, &salts)

	selected := 0
	for i, j := range jobs {
		selected += len(salts[i])
		if !slices.Equal(ours[i], salts[i]) {
			t.Errorf("%+v: %v, a minion of Salt runs it on %v", j, ours[i], salts[i])
		}
	}
	if selected < 500 {
		t.Errorf("only %d resources were selected", selected)
	}
}

// callRunner returns the result of a runner as JSON.
func callRunner(t *testing.T, r *mastertest.Master, fun string, args []any) string {
	t.Helper()
	result, err := r.Parts.Runs.Call(t.Context(), fun, args, value.NewMap())
	if err != nil {
		t.Fatalf("%s: %v", fun, err)
	}
	return runner.JSON(result, false)
}

// TestResourceRunners shows the grains of resources.
func TestResourceRunners(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	registerDummies(r.AcceptedMinion("web1", "min6"))
	for fun, want := range map[string]string{
		"resource.list_grains": `{"dummy:d1": {"grain_keys": ["os", "rack"], "grain_count": 2}, ` +
			`"dummy:d2": {"grain_keys": ["os", "rack"], "grain_count": 2}, "ssh:web01": {"grain_keys": ["os"], "grain_count": 1}}`,
		"resource.show_grains dummy d1":    `{"os": "Dummy", "rack": 1}`,
		"resource.show_grains ssh d1":      `{}`,
		"resource.show_grains dummy web01": `{}`,
		"resource.show_grains dummy ghost": `{}`,
	} {
		words := strings.Fields(fun)
		var args []any
		for _, w := range words[1:] {
			args = append(args, w)
		}
		if got := callRunner(t, r, words[0], args); got != want {
			t.Errorf("%s: %s, want %s", fun, got, want)
		}
	}
}
