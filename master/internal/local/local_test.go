package local

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/master/cache"
	"saltern/master/conf"
	"saltern/master/crypt"
	"saltern/master/internal/acl"
	"saltern/master/internal/background"
	"saltern/master/internal/keyadmin"
	"saltern/master/internal/launch"
	"saltern/master/internal/request"
	"saltern/master/internal/source"
	"saltern/master/internal/wheel"
	"saltern/master/jobs"
	"saltern/master/keys"
	"saltern/master/runner"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// untold is problems that nobody is told of.
type untold struct{}

func (untold) Report(control.Fault, error) {}

// desk is what answers the tools of a host: its callers, job cache, keys and audit log are real,
// its minions and its event bus are not there.
type desk struct {
	t       *testing.T
	dir     string
	key     string // of the user that runs the test
	service *Service
	table   request.Table
	callers Callers
	audit   *audit.Log
	jobs    jobs.Cache
	keys    *keys.Store

	mu        sync.Mutex
	published []*value.Map
	events    []string // tags
	reloads   int      // of the minion keys
	accepted  []string
}

const deskOptions = `external_auth:
  sharedsecret:
    alice: ['.*', '@runner', '@wheel']
    bob: [{'web*': [test.ping]}, '@runner': [test.arg]]
    eve: [test.ping]
sharedsecret: right
user: %s
`

// newDesk opens one whose minions are web1 and db1.
func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t, dir: t.TempDir(), accepted: []string{"db1", "web1"}}
	log := slog.New(slog.DiscardHandler)
	cfg := d.options()
	callers, err := OpenCallers(cfg, func(tag string, _ *value.Map) { d.fire(tag, nil) }, log, log)
	check.Must(t, err)
	t.Cleanup(callers.Close)
	d.callers = callers
	d.key = d.keyOf(CurrentUser())

	d.audit = audit.Open(audit.Config{Dir: audit.MasterDir(d.dir), Node: "n1", Program: "test"})
	t.Cleanup(d.audit.Close)
	local, err := jobs.Open(jobs.Config{Dir: filepath.Join(d.dir, "jobs")}, log)
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, local.Close(await.Context(t))) })
	d.jobs = local
	d.keys, err = keys.Open(filepath.Join(d.dir, "pki"), keys.Config{Create: true, Logger: log})
	check.Must(t, err)
	d.service = New(d.config(log))
	d.table = d.service.Methods()

	return d
}

func (d *desk) options() *conf.Master {
	d.t.Helper()
	path := filepath.Join(d.dir, "master")
	text := fmt.Sprintf("id: m1\ncachedir: %s\npki_dir: %s/pki\ntoken_dir: %s/tokens\n", d.dir, d.dir, d.dir) +
		fmt.Sprintf(deskOptions, CurrentUser())
	check.Must(d.t, os.WriteFile(path, []byte(text), 0o600))
	cfg, err := conf.Load(path)
	check.Must(d.t, err)
	return cfg
}

func (d *desk) config(log *slog.Logger) Config {
	minionData, err := cache.Open(filepath.Join(d.dir, "minions"), 1<<20, keys.ValidID)
	check.Must(d.t, err)
	launcher := launch.New(launch.Config{
		Targets: &launch.Targets{Accepted: d.minions, Cache: minionData},
		Jobs:    d.jobs,
		Fire:    d.fire,
		Publish: func(_ context.Context, load *value.Map, _ []string) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.published = append(d.published, load)
			return nil
		},
		Problems:  untold{},
		User:      CurrentUser(),
		QuotaFile: filepath.Join(d.dir, "quotas"),
		Now:       time.Now,
		Log:       log,
		Quiet:     log,
	})

	table := runner.New()
	AddTokenRunners(table, d.callers, d.audit, time.Now)
	runs := runner.NewRuns(runner.RunsConfig{
		Table: table,
		Env:   &runner.Env{Jobs: d.jobs, Log: log},
		ID:    "m1",
		User:  CurrentUser(),
		Keep:  true,
		Fire:  d.fire,
		IDs:   jobs.NewIDs(time.Now),
		Now:   time.Now,
		Log:   log,
	})

	pool := background.New(4)
	d.t.Cleanup(func() { pool.End(); pool.Close() })
	ring := &keyadmin.Ring{
		Store: d.keys,
		Dir:   filepath.Join(d.dir, "pki"),
		Fire:  func(tag string, data *value.Map) error { d.fire(tag, data); return nil },
	}

	return Config{
		Auth:       d.callers.Auth,
		Blacklist:  acl.Blacklist{Users: []string{"eve"}, Modules: []string{"cmd.shell"}},
		Launch:     launcher,
		Runs:       runs,
		Wheel:      &wheel.Service{Env: &wheel.Env{Keys: ring}, Runs: runs, Wait: pool.Wait},
		Background: pool,
		ReloadKeys: func() error {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.reloads++
			return nil
		},
		Settle:  func(context.Context) error { return nil },
		Fire:    d.fire,
		Trouble: func() string { return "" },
		Audit:   d.audit,
		Log:     log,
		Quiet:   log,
	}
}

func (d *desk) minions() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.accepted)
}

func (d *desk) fire(tag string, _ *value.Map) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, tag)
}

func (d *desk) keyOf(user string) string {
	d.t.Helper()
	key, err := ReadUserKey(filepath.Join(d.dir, "."+user+"_key"))
	check.Must(d.t, err)
	return key
}

// ask sends a command from this host.
func (d *desk) ask(cmd string, fields ...any) any {
	d.t.Helper()
	from := netip.MustParseAddrPort("127.0.0.1:4711")
	answer, err := d.table[cmd].Do(d.t.Context(), &request.Call{Load: value.NewMap(fields...), From: from})
	check.Must(d.t, err)
	return answer
}

// publish asks for a job.
func (d *desk) publish(fun any, tgt string, more ...any) *value.Map {
	d.t.Helper()
	fields := append([]any{"fun", fun, "arg", []any{}, "tgt", tgt, "tgt_type", "glob", "ret", "", "jid", "",
		"kwargs", value.NewMap()},
		more...)
	return d.ask("publish", fields...).(*value.Map)
}

// byKey are the fields by which the user of the test proves himself, login those of others.
func (d *desk) byKey() []any { return []any{"user", CurrentUser(), "key", d.key} }

func login(user string) *value.Map {
	return value.NewMap("eauth", "sharedsecret", "username", user, "password", "right")
}

// record returns the newest audit record of an action, when there are n of them.
func (d *desk) record(n int, action string) (r audit.Record) {
	d.t.Helper()
	await.That(d.t, fmt.Sprintf("%d records of %s", n, action), func() bool {
		page, err := audit.Read(d.t.Context(), "n1", audit.Query{Action: action}, audit.MasterDir(d.dir))
		check.Must(d.t, err)
		if len(page.Records) > 0 {
			r = page.Records[len(page.Records)-1]
		}
		return len(page.Records) == n
	})
	return r
}

// errorName is the class of the error in an answer, as Salt's tools read it.
func errorName(answer any) string {
	m, _ := answer.(*value.Map)
	return m.Map("error").Str("name")
}

// TestPublishAsRoot: who holds the key of the master's user starts any job; the answer says
// which minions have it and which names have no key.
func TestPublishAsRoot(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	answer := d.publish("cmd.run", "*", d.byKey()...)
	load := answer.Map("load")
	if answer.Str("enc") != "clear" || fmt.Sprint(load.Value("minions")) != "[db1 web1]" ||
		!jobs.Valid(load.Str("jid")) {
		t.Errorf("answer: %s", value.Repr(answer))
	}

	if r := d.record(1, "job.publish"); r.User != CurrentUser() || r.Proof != audit.Key ||
		r.JID != load.Str("jid") || r.Minions != 2 || r.Function != "cmd.run" {
		t.Errorf("record: %+v", r)
	}

	for _, secret := range []string{"key", "token", "password", "eauth"} {
		if _, ok := d.published[0].Get(secret); ok {
			t.Errorf("minions get the field %s", secret)
		}
	}

	load = d.publish("test.ping", "web1,gone", append(d.byKey(), "tgt_type", "list")...).Map("load")
	if fmt.Sprint(load.Value("missing")) != "[gone]" || d.reloads != 1 {
		t.Errorf("with a name without a key: %s, keys were read %d times", value.Repr(load), d.reloads)
	}

	d.publish("saltutil.find_job", "*", d.byKey()...)
	d.record(2, "job.publish") // that of find_job is none
}

// TestPublishOfOthers: whoever is not proven, or may not do it, starts nothing and is answered in
// Salt's words; the record says who tried.
func TestPublishOfOthers(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, tt := range []struct {
		name  string
		fun   any
		tgt   string
		more  []any
		error string // "": the job is started
		load  string // the error of a job for nobody
	}{
		{"a wrong key", "test.ping", "*", []any{"user", CurrentUser(), "key", "x"}, "AuthenticationError", ""},
		{"nobody", "test.ping", "*", nil, "AuthenticationError", ""},
		{"all rights", "cmd.run", "db1", []any{"kwargs", login("alice")}, "", ""},
		{"what he may", "test.ping", "web1", []any{"kwargs", login("bob")}, "", ""},
		{"on a minion on which he may not", "test.ping", "db1", []any{"kwargs", login("bob")},
			"AuthorizationError", ""},
		{"what he may not", "cmd.run", "web1", []any{"kwargs", login("bob")}, "AuthorizationError", ""},
		{"a user on the blacklist", "test.ping", "web1", []any{"kwargs", login("eve")}, "AuthorizationError", ""},
		{"a function on the blacklist", "cmd.shell", "web1", []any{"kwargs", login("alice")}, "AuthorizationError", ""},
		{"a returner that gives rights", "test.ping", "web1", []any{"kwargs", login("bob"), "ret", "smtp"},
			"SaltInvocationError", ""},
		{"no function", []any{int64(1)}, "web1", d.byKey(), "SaltInvocationError", ""},
		{"no such minion", "test.ping", "mail*", d.byKey(), "", "Master could not resolve minions for target mail*"},
		{"a target that cannot be read", "test.ping", "(", append(d.byKey(), "tgt_type", "pcre"), "",
			"Master could not resolve minions for target ("},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := len(d.published)
			answer := d.publish(tt.fun, tt.tgt, tt.more...)
			if got := errorName(answer); got != tt.error {
				t.Fatalf("error %q, want %q: %s", got, tt.error, value.Repr(answer))
			}

			load := answer.Map("load")
			if load.Str("error") != tt.load {
				t.Errorf("load: %s, want %q", value.Repr(load), tt.load)
			}

			started := tt.error == "" && tt.load == ""
			if (len(d.published) > before) != started {
				t.Errorf("started: %v", !started)
			}
		})
	}

	if r := d.record(6, "job.publish"); r.User != "bob" || r.Result != audit.Refused || !strings.Contains(r.Detail, "smtp") { // two started, four refused
		t.Errorf("the last record: %+v", r)
	}

	if r := d.record(3, "login"); r.Proof != audit.Unproven { // two wrong keys, and the blacklist
		t.Errorf("the last record: %+v", r)
	}
}

// TestErrorOfAChosenJob: the tool that has chosen a job id hears that there will be no job;
// who waits for another job does not.
func TestErrorOfAChosenJob(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	const free = "20260102030405678901"
	d.publish("cmd.run", "web1", "kwargs", login("bob"), "jid", free)
	d.publish("cmd.run", "web1", "kwargs", login("bob"))

	if tag := "salt/job/" + free + "/error"; !slices.Equal(d.events, []string{tag}) {
		t.Errorf("events %q, want %s", d.events, tag)
	}

	taken := d.publish("test.ping", "*", d.byKey()...).Map("load").Str("jid")
	d.publish("cmd.run", "web1", "kwargs", login("bob"), "jid", taken)
	if slices.Contains(d.events, "salt/job/"+taken+"/error") {
		t.Error("who waits for a job of root is told that there is none")
	}
}

// TestWheel: a wheel function answers with its result; whoever changes keys is written down
// with what he changed, before and after.
func TestWheel(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	check.Must(t, d.keys.Put("new1", keys.Pending, publicKey(t)))
	answer := d.ask("wheel", append(d.byKey(), "fun", "key.list_all")...).(*value.Map)
	data := answer.Map("data")
	if !data.Bool("success") || !slices.Equal(data.Map("return").Texts("minions_pre"), []string{"new1"}) {
		t.Errorf("key.list_all: %s", value.Repr(answer))
	}

	answer = d.ask("wheel", "eauth", "sharedsecret", "username", "alice", "password", "right", "fun",
		"key.accept", "match", "new*").(*value.Map)
	if !answer.Map("data").Bool("success") {
		t.Errorf("key.accept: %s", value.Repr(answer))
	}

	if e, _ := d.keys.Lookup("new1"); e.State != keys.Accepted {
		t.Errorf("the key: %+v", e)
	}

	r := d.record(2, "key.accept") // asked, and done
	if r.User != "alice" || r.Proof != audit.Password || r.Object != "new*" ||
		!strings.Contains(r.Detail, "new1") || r.Result != audit.OK || !r.Limited {
		t.Errorf("record: %+v", r)
	}

	answer = d.ask("wheel", "eauth", "sharedsecret", "username", "bob", "password", "right", "fun",
		"key.delete", "match", "*").(*value.Map)
	if errorName(answer) != "EauthAuthenticationError" {
		t.Errorf("without the right: %s", value.Repr(answer))
	}

	if r := d.record(1, "wheel.call"); r.User != "bob" || r.Result != audit.Refused || r.Function != "key.delete" {
		t.Errorf("record: %+v", r)
	}

	if e, _ := d.keys.Lookup("new1"); e.State != keys.Accepted {
		t.Error("the key is gone")
	}
}

// TestRunner: a runner is answered at once and its result comes as an event; the user who started
// it, and nobody else, gets it whole afterwards.
func TestRunner(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	answer := d.ask("runner", append(d.byKey(), "fun", "test.arg", "arg", []any{"a"})...).(*value.Map)
	jid := answer.Str("jid")
	if answer.Str("tag") != "salt/run/"+jid {
		t.Fatalf("answer: %s", value.Repr(answer))
	}

	await.That(t, "the end of the runner", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return slices.Contains(d.events, "salt/run/"+jid+"/ret")
	})

	if r := d.record(1, "runner.call"); r.JID != jid || r.Result != audit.Started || r.Function != "test.arg" {
		t.Errorf("record: %+v", r)
	}

	result := func(fields ...any) string {
		m := d.ask("saltern_runner_result", append(fields, "jid", jid)...).(*value.Map)
		if _, ok := m.Get("return"); !ok {
			return ""
		}
		return value.Repr(m.Value("return"))
	}

	if got := result(d.byKey()...); !strings.Contains(got, "'a'") {
		t.Errorf("for root: %s", got)
	}

	if got := result("eauth", "sharedsecret", "username", "alice", "password", "right"); got != "" {
		t.Errorf("for alice: %s", got)
	}

	if got := result("user", CurrentUser(), "key", "x"); got != "" {
		t.Errorf("for a stranger: %s", got)
	}

	for _, tt := range []struct{ user, fun, error string }{
		{"bob", "test.arg", ""},
		{"bob", "test.sleep", "EauthAuthenticationError"},
		{"eve", "test.arg", "EauthAuthenticationError"},
		{"bob", "no function", "SaltInvocationError"},
	} {
		answer := d.ask("runner", "eauth", "sharedsecret", "username", tt.user, "password", "right", "fun", tt.fun)
		if got := errorName(answer); got != tt.error {
			t.Errorf("%s calls %s: %q, want %q", tt.user, tt.fun, got, tt.error)
		}
	}
}

// TestJobUser: salt-api learns who has started a job; nobody else does.
func TestJobUser(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	jid := d.publish("test.ping", "web1", "kwargs", login("alice")).Map("load").Str("jid")
	load := value.NewMap("jid", jid)
	source.Say(load, d.key, netip.MustParseAddr("192.0.2.1"))
	said, _ := load.Get(source.Field)
	who := d.ask("saltern_job_user", "jid", jid, source.Field, said).(*value.Map)
	if who.Str("user") != "alice" || who.Str("eauth") == "" && who.Len() < 2 {
		t.Errorf("for salt-api: %s", value.Repr(who))
	}

	for _, fields := range [][]any{
		{"jid", jid},
		{"jid", jid, source.Field, "192.0.2.1 0000"},
		{"jid", "../" + jid, source.Field, said},
	} {
		if who := d.ask("saltern_job_user", fields...).(*value.Map); who.Len() != 0 {
			t.Errorf("%v: %s", fields, value.Repr(who))
		}
	}
}

// TestTokens: a log-in gives a token that proves the user until it is taken back, by a command
// and by the runner; a wrong password gives nothing, and both are written down.
func TestTokens(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	made := d.ask("mk_token", "eauth", "sharedsecret", "username", "alice", "password", "right").(*value.Map)
	token := made.Str("token")
	if token == "" || made.Str("name") != "alice" {
		t.Fatalf("token: %s", value.Repr(made))
	}

	answer := d.publish("cmd.run", "web1", "kwargs", value.NewMap("token", token))
	if answer.Map("load").Str("jid") == "" || d.published[0].Str("user") != "alice" {
		t.Errorf("by the token: %s", value.Repr(answer))
	}

	table := runner.New()
	AddTokenRunners(table, d.callers, d.audit, time.Now)
	call := func(name string, args []any, named *value.Map) (any, error) {
		return table.Call(t.Context(), nil, name, args, named)
	}
	if was, err := call("auth.del_token", []any{token}, nil); was != true || err != nil {
		t.Errorf("auth.del_token: %v, %v", was, err)
	}

	if was, err := call("auth.del_token", []any{token}, nil); was != false || err != nil {
		t.Errorf("auth.del_token again: %v, %v", was, err)
	}

	if got := errorName(d.publish("cmd.run", "web1", "kwargs", value.NewMap("token", token))); got != "AuthenticationError" {
		t.Errorf("by a token that is gone: %q", got)
	}

	if r := d.record(1, "token.delete"); r.User != "alice" || r.Result != audit.OK {
		t.Errorf("record: %+v", r)
	}

	made2, err := call(tokenMaker, nil, value.NewMap("eauth", "sharedsecret", "username", "bob", "password", "right"))
	if m, ok := made2.(*value.Map); err != nil || !ok || m.Str("name") != "bob" {
		t.Errorf("auth.mk_token: %v, %v", made2, err)
	}

	if v := d.ask("mk_token", "eauth", "sharedsecret", "username", "alice", "password", "wrong"); v != "" {
		t.Errorf("by a wrong password: %v", v)
	}

	if r := d.record(4, "login"); r.Result != audit.Refused || r.Proof != audit.Unproven || r.User != "alice" {
		t.Errorf("record: %+v", r)
	}

	for _, bad := range []func() (any, error){
		func() (any, error) { return call(tokenMaker, []any{"alice"}, nil) },
		func() (any, error) { return call("auth.del_token", nil, nil) },
		func() (any, error) { return call("auth.del_token", []any{int64(1)}, nil) },
	} {
		if v, err := bad(); err == nil {
			t.Errorf("wrong arguments: %v", v)
		}
	}
}

// TestUserKeys: each user has a key of his own in a file for him alone, which a later start
// reads; what is no key is refused and names the file.
func TestUserKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	users := []string{CurrentUser(), "nobody-of-this-host", "", "web*", "a/b"}
	first, err := UserKeys(dir, users, true, log)
	check.Must(t, err)

	if len(first) != 1 || first[CurrentUser()] == "" {
		t.Errorf("keys of %v", len(first))
	}

	path := filepath.Join(dir, "."+CurrentUser()+"_key")
	info, err := os.Stat(path)
	check.Must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}

	again, err := UserKeys(dir, users, false, log)
	check.Must(t, err)
	if again[CurrentUser()] != first[CurrentUser()] || len(again) != 2 {
		t.Errorf("a later start: %d keys, the same: %v", len(again), again[CurrentUser()] == first[CurrentUser()])
	}

	for name, spoil := range map[string]func() error{
		"no key":   func() error { return os.WriteFile(path, []byte("x"), 0o600) },
		"long":     func() error { return os.WriteFile(path, []byte(strings.Repeat("x", 5000)), 0o600) },
		"a link":   func() error { os.Remove(path); return os.Symlink("/etc/hostname", path) },
		"a folder": func() error { os.Remove(path); return os.Mkdir(path, 0o700) },
	} {
		check.Must(t, spoil())
		if _, err := UserKeys(dir, users, true, log); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
		check.Must(t, os.Remove(path))
	}
}

// TestAnswersToPing: a ping is echoed as Salt does it, unless the echo would be large.
func TestAnswersToPing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		load *value.Map
		echo bool
	}{
		"plain":       {value.NewMap("cmd", "ping"), true},
		"with more":   {value.NewMap("cmd", "ping", "n", int64(1), "f", 1.5, "b", true, "x", nil), true},
		"long text":   {value.NewMap("cmd", "ping", "x", strings.Repeat("x", maxPong)), false},
		"long key":    {value.NewMap("cmd", "ping", strings.Repeat("x", maxPong), ""), false},
		"bytes":       {value.NewMap("cmd", "ping", "x", []byte{}), false},
		"nested":      {value.NewMap("cmd", "ping", "x", value.NewMap()), false},
		"many fields": {manyFields(), false},
	} {
		if got := pongOf(tt.load); (got.Len() == tt.load.Len() && got.Len() > 1 ||
			name == "plain") != tt.echo || got.Str("cmd") != "ping" {
			t.Errorf("%s: %d fields", name, got.Len())
		}
	}
}

func manyFields() *value.Map {
	m := value.NewMap("cmd", "ping")
	for i := range maxPongFields {
		m.Set(int64(i), nil)
	}
	return m
}

// publicKey returns a key as a minion sends it.
func publicKey(t *testing.T) string {
	t.Helper()
	pair, err := crypt.LoadPrivate("../../testdata/wire/keys/min6_TESTONLY.pem", "")
	check.Must(t, err)
	text, err := crypt.PublicPEM(&pair.PublicKey)
	check.Must(t, err)
	return text
}
