package users

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"saltern/master/cache"
	"saltern/master/internal/launch"
	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/keys"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

const limitedUser = "sharedsecret: right\nexternal_auth:\n  sharedsecret:\n    alice:\n      - 'web*': [test.ping, cmd.run]\n    bob: [test.ping]\n"

// publishAs publishes for a user of the external system.
func publishAs(r *mastertest.Master, user string, tgt any, typ, fun string, more ...any) *value.Map {
	r.T.Helper()
	fields := append([]any{"tgt", tgt, "fun", fun, "arg", []any{}, "tgt_type", typ, "ret", "", "jid", "",
		"kwargs",
		value.NewMap("delimiter", ":", "eauth", "sharedsecret", "username", user, "password", "right")},
		more...)
	v, _ := r.AskInClear("publish", fields...).(*value.Map)
	return v.Map("load")
}

// TestFinding03Publication: what a caller with limited rights starts goes to
// the minions for which it was permitted, however the target is written.
func TestFinding03Publication(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, limitedUser+"peer:\n  web1:\n    - 'web*': [test.ping]\n")
	web := r.AcceptedMinion("web1", "min8")
	db := r.AcceptedMinion("db1", "min7")
	sub := r.Subscribe()
	for _, x := range []struct {
		typ  string
		tgt  any
		want []any
	}{
		{"glob", "web1", []any{"web1"}}, {"glob", "web*", []any{"web1"}}, {"list", []any{"web1", "nosuch"}, []any{"web1"}}, {"list", "web1,nosuch", []any{"web1"}},
		{"pcre", "web1|d[{1}b9", []any{"web1"}}, {"compound", "web1 or E@nosuch", []any{"web1"}}, {"compound", "web1 or not E@[[:alnum:]]", nil},
		{"glob", "db1", nil}, {"glob", "*", nil}, {"pcre", "web1|d{,1}b1", nil}, {"compound", "web1 or E@d{,1}b1", nil}, {"compound", "web1 or x\x1cor\x1c*", nil},
		{"pcre", "web1|nosuch)|(?:.*db1", nil},
	} {
		for _, user := range []string{"alice", "bob"} {
			load := publishAs(r, user, x.tgt, x.typ, "test.ping")
			out := sub.Published()
			if user == "alice" && x.want == nil {
				if load.Str("jid") != "" || len(out) > 0 {
					t.Errorf("%s %v: published as %v", x.typ, x.tgt, load)
				}
				continue
			}

			if load.Str("jid") == "" {
				continue // selects nobody, or is none
			}
			if len(out) != 1 {
				t.Fatalf("%s %v: %d publications", x.typ, x.tgt, len(out))
			}

			pub := web.OpenPublication(out[0])
			if user == "bob" && x.tgt == "*" { // he is permitted on all minions
				if pub.Str("tgt_type") != "glob" || pub.Str("tgt") != "*" {
					t.Errorf("everybody of bob went to %s %v", pub.Str("tgt_type"), pub.Value("tgt"))
				}
				continue
			}

			if pub.Str("tgt_type") != "list" || !slices.Equal(pub.List("tgt"), load.List("minions")) ||
				user == "alice" && !slices.Equal(pub.List("tgt"), x.want) {
				t.Errorf("%s %v of %s went to %s %v", x.typ, x.tgt, user, pub.Str("tgt_type"), pub.Value("tgt"))
			}

			kept, err := r.Parts.Jobs.Load(await.Context(t), load.Str("jid"))
			check.Must(t, err)
			if fmt.Sprint(kept.Value("tgt")) != fmt.Sprint(x.tgt) || kept.Str("tgt_type") != x.typ {
				t.Errorf("%s %v is shown as %v", x.typ, x.tgt, kept.Value("tgt"))
			}
		}
	}

	// A minion's job.
	if v, _ := web.Ask("minion_pub", "fun", "test.ping", "arg", []any{}, "tgt", "web1|d{,1}b9", "tgt_type",
		"pcre", "ret", "").(*value.Map); v.Str("jid") == "" {
		t.Errorf("minion_pub: %v", v)
	}

	if out := sub.Published(); len(out) != 1 || db.OpenPublication(out[0]).Str("tgt_type") != "list" {
		t.Errorf("%d publications of a minion, or not as a list", len(out))
	}

	// Root's targets go out as they are.
	r.Publish("w*", "test.ping")
	if out := sub.Published(); len(out) != 1 || db.OpenPublication(out[0]).Str("tgt") != "w*" {
		t.Error("the target of a caller with all rights was changed")
	}
}

// TestFinding03Returns: a return of a minion that a list did not name is
// refused, also after a restart; every other return is kept.
func TestFinding03Returns(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, limitedUser)
	web, db := r.AcceptedMinion("web1", "min8"), r.AcceptedMinion("db1", "min7")
	ret := func(n *mastertest.Minion, jid string) {
		n.Ask("_return", "jid", jid, "fun", "test.ping", "fun_args", []any{}, "return", true, "retcode", 0)
	}
	has := func(jid string, want ...string) {
		t.Helper()
		m, err := r.Parts.Jobs.Returns(await.Context(t), jid)
		check.Must(t, err)
		got := m.Keys()
		slices.Sort(got)

		if !slices.Equal(got, want) {
			t.Errorf("returns of %v, want %v", got, want)
		}
	}

	limited := publishAs(r, "alice", "web*", "glob", "test.ping").Str("jid")
	all := r.Publish("web*", "test.ping").Str("jid")
	unknown := "20261123011500123456"
	r.ListenToBus()

	for _, jid := range []string{limited, all, unknown} {
		ret(web, jid)
		ret(db, jid)
	}

	for _, e := range r.NewEvents() {
		if e.Tag == "salt/job/"+limited+"/ret/db1" {
			t.Error("the event of a refused return was fired")
		}
	}

	has(limited, "web1")
	has(all, "db1", "web1")
	has(unknown, "db1", "web1")
	if n := r.Parts.Launch.Stats().Unlisted; n != 1 {
		t.Errorf("%d refused", n)
	}

	second := publishAs(r, "alice", "web*", "glob", "test.ping").Str("jid")
	third := r.Publish("web*", "test.ping").Str("jid")
	r = r.Restart(limitedUser)
	web, db = web.TalkTo(r), db.TalkTo(r)
	web.SignIn()
	db.SignIn()

	for _, jid := range []string{second, third} {
		ret(web, jid)
		ret(db, jid)
	}

	has(second, "web1")
	has(third, "db1", "web1")

	// A batch publishes one job several times.
	jid := publishAs(r, "alice", "web1", "glob", "test.ping").Str("jid")
	check.Must(t, r.Parts.Keys.Put("web2", keys.Accepted, mastertest.PublicPEM(t, mastertest.KeyPair(t, "min6"))))
	publishAs(r, "alice", []any{"web2"}, "list", "test.ping", "jid", jid)
	if !r.Parts.Launch.MayReturn(t.Context(), jid, "web1") {
		t.Error("the first part of a batch is refused")
	}
}

// hostileTargets makes targets of all kinds from pieces that Go and Python
// read in different ways.
func hostileTargets(n int) (out []struct{ typ, tgt string }) {
	r := rand.New(rand.NewPCG(3, 2026))
	pick := func(l []string) string { return l[r.IntN(len(l))] }
	ids := []string{"web1", "web2", "web1x", "db1", "db2", "mail,1", ",db9", "wéb3", "W1", "nosuch", "*",
		"web*", "d?1", "[wd]*", "[!w]*", "[[]x*", "we{b,c}1"}
	exprs := []string{"web1", "web", "d{,1}b1", "d{,}b1", "x{,2}db1", "[[:alnum:]]", "[[:alpha:]]+1", "[]x]",
		"[^]]", "(?i)WEB1", "(?=db)", "(?!web).*", ".*", "\\w+1", "\\d", "[\\w]+", "\\Z", "web1\\Z", "\\z",
		"\\Qdb1\\E", "\\pL+",
		"(?P<a>d)b(?P=a)?1", "(d)b\\1?1", "w|d", "$", "^db", "\\Adb", "[a-e]b1", "(?s).", "(?x) d b 1", "(?#x)db", "a)|(?:db1", ")", "(", "d{1,2}?b", "d*+b1", "\\x64b1", "\\u0064b1", "\\N{LATIN SMALL LETTER D}b", "(?-i:DB)", "(?<n>d)b", "[d&&d]b", "d++b", "é", "\\b"}

	seps := []string{" ", " ", " ", "\t", "\x1c", "\x1f", "\u00a0", "\u3000", "\u200b", "\n", "\x85", "  "}
	cidrs := []string{"10.0.0.1", "10.0.0.0/24", "0.0.0.0/0", "10.0.0.0/8", "010.0.0.1",
		"10.0.0.0/255.0.0.0", "10.0.0.0/0.0.0.255", "::/0", "fe80::1%eth0", "10.0.0.1/24", "10.0.0.0/033",
		"١0.0.0.1"}
	grains := []string{"os:Debian", "os:d{,1}ebian", "roles:web", "os:*", "*:web", "roles:*", "os", "id:web1", "id:*"}
	regex := func() string {
		s := pick(exprs)
		for range r.IntN(3) {
			s += pick([]string{"|", "", "", "?", "*"}) + pick(exprs)
		}
		return s
	}

	operand := func() string {
		switch r.IntN(8) {
		case 0, 1:
			return "E@" + regex()
		case 2:
			return "L@" + pick(ids) + "," + pick(ids)
		case 3:
			return "S@" + pick(cidrs)
		case 4:
			return pick([]string{"G@", "P@", "G|@"}) + pick(grains)
		case 5:
			return pick([]string{"T@x", "M@x", "R@x", "X@web1", "N@nosuch", "e@db1", "E@", "E @db1"})
		}

		return pick(ids)
	}

	for range n {
		switch r.IntN(6) {
		case 0:
			out = append(out,
				struct{ typ, tgt string }{"glob", pick(ids) + pick([]string{"", "", "*", "[", "]", "\\"})})
		case 1:
			out = append(out, struct{ typ, tgt string }{"pcre", regex()})
		case 2:
			out = append(out,
				struct{ typ, tgt string }{"list", pick(ids) + pick([]string{",", ", ", ",,", "\x1c", ";"}) + pick(ids)})
		case 3:
			out = append(out, struct{ typ, tgt string }{"ipcidr", pick(cidrs)})
		default:
			var b strings.Builder
			b.WriteString(pick([]string{"", "", "not ", "( ", "web1 or "}) + operand())
			for range 1 + r.IntN(3) {
				b.WriteString(pick(seps) +
					pick([]string{"or", "and", "and not", "not", "or not", "AND", ")", "or ("}) + pick(seps) + operand())
			}

			b.WriteString(pick([]string{"", "", " )"}))
			out = append(out, struct{ typ, tgt string }{"compound", b.String()})
		}
	}

	return out
}

// TestFinding03Targets: of 10,000 targets none that is permitted and published
// is taken by a minion outside what was permitted, by the judgement of Salt's
// own matchers, and each is taken by exactly the minions that were found.
func TestFinding03Targets(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	ids := []string{"mail,1", ",db9", "db9,", "wéb3", "W1", "x y", "web1,db1", "or", "not", "E@db1", "L@db1"}
	for i := len(ids); i < 25; i++ {
		ids = append(ids, fmt.Sprintf("web%d", i-10))
	}

	for i := len(ids); i < 50; i++ {
		ids = append(ids, fmt.Sprintf("db%d", i-24))
	}

	minions := map[string]any{}
	for i, id := range ids {
		check.Must(t, r.Parts.Keys.Put(id, keys.Accepted, mastertest.PublicPEM(t, mastertest.KeyPair(t, "min8"))))
		_, err := r.Parts.Cache.Set(cache.Grains, id,
			value.NewMap("id", id, "os", "Debian", "roles", []any{"web", "x"}, "ipv4",
				[]any{fmt.Sprintf("10.0.0.%d", i)}, "ipv6", []any{}))
		check.Must(t, err)
		minions[id] = map[string]any{
			"id":    id,
			"os":    "Debian",
			"roles": []string{"web", "x"},
			"ipv4":  []string{fmt.Sprintf("10.0.0.%d", i)},
			"ipv6":  []string{},
		}
	}

	perms := [][]any{
		{value.NewMap("web*", []any{"cmd.run"})},
		{value.NewMap("E@w.*", []any{"cmd.run"}), value.NewMap("db1", []any{"cmd.run"})},
		{"cmd.run"},
	}

	type published struct {
		Tgt  any    `json:"tgt"`
		Type string `json:"tgt_type"`
	}

	var pubs []published
	var want [][]string
	for i, x := range hostileTargets(10000) {
		load := value.NewMap("fun", "cmd.run", "arg", []any{}, "tgt", x.tgt, "tgt_type", x.typ, "ret", "",
			"jid", "20261123011500123456")
		j, err := r.Parts.Launch.New(t.Context(), load)
		if err != nil || len(j.Minions) == 0 ||
			r.Parts.Launch.Permit(nil, j, launch.Caller{Permissions: perms[i%len(perms)]}) != nil {
			continue
		}

		pub := r.Parts.Launch.Publication(j)
		pubs = append(pubs, published{pub.Value("tgt"), pub.Str("tgt_type")})
		want = append(want, j.Minions)
	}

	if len(pubs) < 1000 {
		t.Fatalf("only %d jobs were published", len(pubs))
	}

	// What must differ shows that the test can tell: Salt's list matcher takes
	// a name between commas out of a list that is text.
	pubs = append(pubs, published{"web1,db1", "list"}, published{"*", "glob"})
	want = append(want, []string{"db1", "web1"}, ids)
	var got [][]string
	mastertest.AskSalt(t, mastertest.TestData(t, "findings", "matchers.py"), map[string]any{"Minions": minions, "Jobs": pubs}, &got)

	for i := range pubs {
		slices.Sort(got[i])
		w := slices.Sorted(slices.Values(want[i]))
		if i < len(pubs)-2 && !slices.Equal(got[i], w) {
			t.Errorf("%v went to %v and is taken by %v", pubs[i], w, got[i])
		}
	}

	if len(got[len(got)-1]) != len(ids) || slices.Equal(got[len(got)-2], want[len(want)-2]) {
		t.Error("Salt's matchers did not judge")
	}
}

// TestFinding03ChosenJob: a caller with limited rights who names the id of an
// older job does not close that job to the minions that still work at it.
func TestFinding03ChosenJob(t *testing.T) {
	r := mastertest.Start(t, limitedUser)
	web, db := r.AcceptedMinion("web1", "min6"), r.AcceptedMinion("db1", "min7")
	r.ListenToBus()
	open, _ := r.AskInClear("publish", "tgt", "*", "fun", "test.ping", "arg", []any{}, "tgt_type", "glob", "ret",
		"", "jid", "", "user", local.CurrentUser(), "key", r.Key).(*value.Map)
	jid := open.Map("load").Str("jid")
	if jid == "" {
		t.Fatalf("not published: %v", open)
	}

	r = r.Restart(limitedUser)
	web, db = web.TalkTo(r), db.TalkTo(r)
	web.SignIn()
	db.SignIn()
	r.AskInClear("publish", "tgt", "web1", "fun", "test.ping", "arg", []any{}, "tgt_type", "glob", "ret", "", "jid", jid, "user", "alice",
		"kwargs", value.NewMap("eauth", "sharedsecret", "username", "alice", "password", "right"))

	for _, n := range []*mastertest.Minion{web, db} {
		n.Ask("_return", "jid", jid, "fun", "test.ping", "fun_args", []any{}, "return", true, "retcode", 0,
			"success", true)
		rets, err := r.Parts.Jobs.Returns(t.Context(), jid)
		check.Must(t, err)
		if _, ok := rets.Get(n.ID); !ok {
			t.Errorf("the return of %s is lost", n.ID)
		}
	}
}
