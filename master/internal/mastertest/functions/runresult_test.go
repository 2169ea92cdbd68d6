package functions

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"saltern/master/client"
	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// connectSaltRun connects to this master as salt-run of a user does.
func connectSaltRun(r *mastertest.Master, user string) *client.Client {
	r.T.Helper()
	c := client.New(client.Config{
		Interface:  r.Host,
		RetPort:    r.Parts.Options.RetPort,
		SockDir:    r.Path("run"),
		CacheDir:   r.Path("cache"),
		MasterUser: local.CurrentUser(),
		User:       user,
		Timeout:    5 * time.Second,
		Log:        slog.New(slog.NewTextHandler(r.Log, nil)),
	})
	r.T.Cleanup(c.Close)
	return c
}

// A return that is larger than max_event_size comes whole through salt-run, on
// the master that took it and on another one.
func TestLargeReturnsAreLookedUp(t *testing.T) {
	t.Parallel()
	ms := mastertest.StartCluster(t, 2)
	mastertest.AwaitLinks(t, ms)
	a, b := ms[0], ms[1]
	n := b.AcceptedMinion("min1", "min6")
	await.That(t, "the minion at a", func() bool { return len(a.Parts.Keys.Accepted()) == 1 })
	jid := a.Publish("*", "test.arg").Str("jid")
	want := value.NewMap()
	for i := range 2000 {
		want.Set(fmt.Sprintf("state %d", i),
			value.NewMap("result", true, "comment", strings.Repeat("c", 700), "duration", 1.5))
	}

	want.Set("file", strings.Repeat("x", 600<<10))
	wanted := mastertest.PlainText(want)
	n.Ask("_return", "jid", jid, "fun", "test.arg", "fun_args", []any{}, "return", want, "retcode", 0, "success", true)
	for i, r := range ms {
		await.That(t, "the return", func() bool {
			rets, err := r.Parts.Jobs.Returns(await.Context(t), jid)
			check.Must(t, err)
			return rets.Map("min1") != nil
		})

		for _, fun := range []string{"jobs.lookup_jid", "jobs.list_job", "jobs.print_job"} {
			d, err := connectSaltRun(r, local.CurrentUser()).Runner(await.Context(t), fun, []any{jid}, value.NewMap(), nil,
				func(string, *value.Map) {})
			check.Must(t, err)
			got := d.Map("return")
			switch fun {
			case "jobs.lookup_jid":
				got = got.Map("min1")
			case "jobs.print_job":
				got = got.Map(jid)
				fallthrough
			default:
				got = got.Map("Result").Map("min1").Map("return")
			}

			if mastertest.PlainText(got) != wanted {
				text := mastertest.PlainText(d)
				t.Errorf("%s on master %d: %d bytes, %d values trimmed; log %.500s", fun, i, len(text),
					strings.Count(text, "VALUE_TRIMMED"), r.Log)
			}
		}
	}
}

// What a runner returned is for the user who started it.
func TestRunnerResultsHaveOwners(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "publisher_acl:\n  bob: [.*, '@runner']\nclient_acl_verify: False\n"+
		"external_auth:\n  sharedsecret:\n    ann: ['@runner']\n    eve: ['@runner', '@wheel']\nsharedsecret: right-password\n")
	r.ListenToBus()
	bob, err := os.ReadFile(r.Path("cache", ".bob_key"))
	check.Must(t, err)
	token := func(user string) []any {
		m, _ := r.AskInClear("mk_token", "eauth", "sharedsecret", "username", user, "password",
			"right-password").(*value.Map)
		if m.Str("token") == "" {
			t.Fatalf("no token for %s: %v", user, m)
		}
		return []any{"token", m.Str("token")}
	}

	root, ann, eve := []any{"key", r.Key, "user", local.CurrentUser()}, token("ann"), token("eve")
	run := func(who []any) string {
		return runnerResult(r, r.AskInClear("runner",
			append([]any{"fun", "test.arg", "arg", []any{"for me"}}, who...)...)).Str("jid")
	}

	wheel := r.AskInClear("wheel", append([]any{"fun", "key.list_all"}, root...)...).(*value.Map).Map("data").Str("jid")
	ofRoot, ofAnn := run(root), run(ann)
	for _, c := range []struct {
		name, jid string
		who       []any
		want      bool
	}{
		{"root's own", ofRoot, root, true}, {"ann's own", ofAnn, ann, true}, {"ann's, for eve", ofAnn, eve, false}, {"ann's, for root", ofAnn, root, false},
		{"root's, for ann", ofRoot, ann, false}, {"root's, for bob", ofRoot, []any{"key", string(bob), "user", "bob"}, false},
		{"root's, for bob who says he is root", ofRoot,
			[]any{"key", string(bob), "user", local.CurrentUser()}, false}, {"root's, for nobody", ofRoot, nil, false},
		{"a wheel function's", wheel, root, false}, {"no job", "../../etc", root, false}, {"another job", "20200101000000000000", root, false},
	} {
		v, _ := r.AskInClear("saltern_runner_result", append([]any{"jid", c.jid}, c.who...)...).(*value.Map)
		ret, got := v.Get("return")
		if got != c.want || c.want && !strings.Contains(mastertest.PlainText(ret), "for me") {
			t.Errorf("%s: %s", c.name, mastertest.PlainText(v))
		}
	}
}
