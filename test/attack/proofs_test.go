//go:build attack

package attack

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/master/crypt"
	"saltern/master/event"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/master/zmtp"
	"saltern/test/lab"
	"saltern/test/minion"
)

// proofs are the audit's proofs, done again against the running node.
func (a *arena) proofs(t *testing.T) {
	t.Run("01", a.events)
	t.Run("03", a.targets)
	t.Run("04", a.runnerOptions)
	t.Run("05", a.users)
	t.Run("13", a.replay)
}

// within bounds one step of a proof.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.Limit(30*time.Second))
	t.Cleanup(cancel)
	return ctx
}

// evil gives the accepted minion that is not to be trusted, signed in.
func (a *arena) evil(t *testing.T) *minion.Minion {
	t.Helper()
	m := a.minion(t, "evil")
	t.Cleanup(m.Close)
	if err := m.SignIn(within(t)); err != nil {
		t.Fatal(err)
	}
	return m
}

func newPrivate(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	k, err := crypt.GeneratePrivate(2048)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// bus listens to the events of the master.
type bus struct {
	*event.Listener
	t *testing.T
}

func (a *arena) listen(t *testing.T) bus {
	t.Helper()
	l, err := event.DialPub(within(t), a.node.Settings.MasterSockDir())
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = l.Close() })

	// A connection may wait to be accepted. A wheel function begins when all that were made
	// before hear the master.
	key, err := os.ReadFile(filepath.Join(a.node.Settings.CacheDir(), ".root_key"))
	if err != nil {
		t.Fatal(err)
	}

	if r := a.plain(t, "cmd", "wheel", "fun", "key.list_all", "key", strings.TrimSpace(string(key)), "user",
		"root"); r.Map("data") == nil {
		t.Fatalf("wheel as root: %v", r)
	}

	return bus{l, t}
}

// until gives the tags of all events until one with the tag last has come.
func (b bus) until(last string) (tags []string, at event.Event) {
	b.t.Helper()
	ctx := within(b.t)
	for {
		e, err := b.Next(ctx)
		if err != nil {
			b.t.Fatalf("waiting for event %s: %v", last, err)
		}
		if e.Tag == last {
			return tags, e
		}
		tags = append(tags, e.Tag)
	}
}

// plain sends a request in the clear, as the tools of Salt do.
func (a *arena) plain(t *testing.T, fields ...any) *value.Map {
	t.Helper()
	payload, err := msgpack.Marshal(value.NewMap("enc", "clear", "load", value.NewMap(fields...), "version", 3),
		msgpack.Raw)
	if err != nil {
		t.Fatal(err)
	}

	r, err := zmtp.DialReq(within(t), a.node.Settings.MasterRequest(), zmtp.DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()

	b, err := r.Do(within(t), payload)
	if err != nil {
		t.Fatal(err)
	}

	v, err := msgpack.Decode(b, msgpack.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}

	m, _ := v.(*value.Map)
	return m
}

// publish starts a job and gives its id; empty when it was refused.
func (a *arena) publish(t *testing.T, typ string, tgt any, fun string, arg []any, who ...any) string {
	t.Helper()
	m := a.plain(t,
		append([]any{"cmd", "publish", "tgt", tgt, "tgt_type", typ, "fun", fun, "arg", arg, "ret", "", "jid", ""},
			who...)...)
	return m.Map("load").Str("jid")
}

// events: 1. Tags at which masters act do not pass from a minion to the bus.
func (a *arena) events(t *testing.T) {
	m, b := a.evil(t), a.listen(t)
	j := "salt/job/20260102030405678901"
	tags := []string{j + "/publish", j + "/new", j + "/ret/web1", j + "/prog/evil/x/publish",
		j + "/prog/evil/new", j + "/prog/evil/1/publish",
		j + "x/prog/evil/publish", j + "/start/evil/publish", "salt/key", "salcluster/event/node1/t/key", "salcluster/event/node1/t/job/20260102030405678901/publish",
		"rotate_cluster_aes_key", "cluster/event/node1/salt/key", "x/cluster/event/node1/y"}

	var events []any
	for _, tag := range tags {
		data := value.NewMap("jid", "20260102030405678901", "fun", "cmd.run", "arg", []any{"id"}, "tgt", "*")
		events = append(events, value.NewMap("tag", tag, "data", data))
		_, _ = m.Ask(within(t), "_minion_event", "tag", tag, "data", data, "pretag", nil)
	}

	_, _ = m.Ask(within(t), "_minion_event", "events", events, "pretag", nil)
	if _, err := m.Ask(within(t), "_minion_event", "tag", "custom/last", "data", value.NewMap("x", 1),
		"pretag", nil); err != nil {
		t.Fatal(err)
	}

	seen, _ := b.until("custom/last")
	var passed, faults []string
	for _, tag := range tags {
		if slices.Contains(seen, tag) {
			passed = append(passed, tag)
		}
	}

	if len(passed) > 0 {
		faults = append(faults, "on the bus: "+strings.Join(passed, ", "))
	}

	line(t, "1", "events of a minion with tags masters act on",
		fmt.Sprintf("%d tags, singly and as a list", len(tags)), faults...)
}

// targets: 3. Who may reach web* reaches no other, however the target is
// written. Real minions judge what is published.
func (a *arena) targets(t *testing.T) {
	b := a.listen(t)
	dir := lab.Dir(t)
	alice := []any{"kwargs", value.NewMap("eauth", "sharedsecret", "username", "alice", "password", secret)}
	var faults, answers []string
	for i, x := range []struct{ typ, tgt string }{
		{"glob", "db1"}, {"pcre", "web1|d{,1}b1"}, {"compound", "web1 or E@d{,1}b1"}, {"compound", "web1 or not E@[[:alnum:]]"}, {"compound", "web1 or x\x1cor\x1c*"},
		{"glob", "web1"},
	} {
		// Every minion that does it leaves a file with the number of its process,
		// all being on this machine.
		jid := a.publish(t, x.typ, x.tgt, "cmd.run", []any{fmt.Sprintf("touch %s/%d.$PPID", dir, i)}, alice...)
		answers = append(answers, fmt.Sprintf("%q %t", x.tgt, jid != ""))
		if jid != "" {
			b.until("salt/job/" + jid + "/ret/web1")
		}

		a.node.Ping(t, 30*time.Second, a.ids...) // they have had time for it
		files, _ := filepath.Glob(fmt.Sprintf("%s/%d.*", dir, i))
		if want := map[bool]int{false: 0, true: 1}[jid != ""]; len(files) != want {
			faults = append(faults, fmt.Sprintf("%s %q ran on %d minions", x.typ, x.tgt, len(files)))
		}

		if x.tgt == "web1" && jid == "" {
			faults = append(faults, "what is permitted is refused")
		}
	}

	line(t, "3", "permission for web*, targets written otherwise", strings.Join(answers, ", "), faults...)
}

// push gives the master a file of a minion (cp.push).
func push(t *testing.T, m *minion.Minion, path, text string) {
	t.Helper()
	var parts []any
	for p := range strings.SplitSeq(path, "/") {
		parts = append(parts, p)
	}
	v, err := m.Ask(within(t), "_file_recv", "path", parts, "loc", 0, "data", []byte(text), "size", len(text))
	if err != nil || v != true {
		t.Fatalf("_file_recv of %s: %v, %v", path, v, err)
	}
}

// runnerOptions: 4. Arguments of runners stay arguments.
func (a *arena) runnerOptions(t *testing.T) {
	m, b := a.evil(t), a.listen(t)
	dir := lab.Dir(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}

	files := filepath.Join(a.node.Settings.CacheDir(), "minions", "evil", "files")
	push(t, m, "conf/master",
		fmt.Sprintf("root_dir: %s\nrunner_dirs: ['%s/conf/r']\nlog_file: /dev/null\n", dir, files))
	push(t, m, "conf/r/manage.py",
		fmt.Sprintf("import os\ndef upx(*a, **k):\n    open('%s/by-peer', 'w').write('x')\n    return 'done by uid %%d' %% os.getuid()\n",
			dir))
	answer, err := m.Ask(within(t), "minion_runner", "fun", "manage.upx", "arg",
		[]any{"--config-dir", files + "/conf"}, "tmo", 20)
	var faults []string
	if _, e := os.Stat(dir + "/by-peer"); e == nil {
		faults = append(faults, fmt.Sprintf("peer_run of manage.up ran a minion's code: %v", answer))
	}

	if err == nil && answer != nil && strings.Contains(fmt.Sprint(answer), "done by") {
		faults = append(faults, fmt.Sprint(answer))
	}

	ran := 0
	for _, arg := range []string{"--out-file=" + dir + "/by-user", "--log-file=" + dir + "/by-log"} {
		for _, fun := range []string{"jobs.x", "jobs.list_jobs"} {
			r := a.plain(t, "cmd", "runner", "fun", fun, "kwarg", value.NewMap("arg", []any{arg}, "kwarg",
				value.NewMap()),
				"eauth", "sharedsecret", "username", "bob", "password", secret)
			if tag := r.Str("tag"); tag != "" {
				b.until(tag + "/ret")
				ran++
			}
		}
	}

	for _, name := range []string{"by-user", "by-log"} {
		if _, e := os.Stat(filepath.Join(dir, name)); e == nil {
			faults = append(faults, "@jobs wrote a file: "+name)
		}
	}

	line(t, "4", "options of salt-run as arguments of runners",
		fmt.Sprintf("peer_run answered %.60v %v; %d of 4 runners of @jobs started", answer, errors.Unwrap(err), ran),
		faults...)
}

// users: 5. The key of a user is good for that user.
func (a *arena) users(t *testing.T) {
	key, err := os.ReadFile(filepath.Join(a.node.Settings.CacheDir(), ".nobody_key"))
	if err != nil {
		t.Fatal(err)
	}

	k := strings.TrimSpace(string(key))
	var faults, outcome []string
	for _, x := range []struct {
		user, fun string
		may       bool
	}{
		{"nobody", "test.ping", true},
		{"nobody", "cmd.run", false},
		{"root", "cmd.run", false},
		{"sudo_x", "cmd.run", false},
		{"", "cmd.run", false},
	} {
		arg := []any{}
		if x.fun == "cmd.run" {
			arg = []any{"true"}
		}

		who := []any{"key", k, "user", x.user}
		if x.user == "" {
			who = who[:2]
		}

		got := a.publish(t, "glob", "web1", x.fun, arg, who...) != ""
		outcome = append(outcome, fmt.Sprintf("%s as %q %t", x.fun, x.user, got))
		if got != x.may {
			faults = append(faults, fmt.Sprintf("%s as %q with the key of nobody: %t", x.fun, x.user, got))
		}
	}

	for _, user := range []string{"root", "sudo_x"} {
		if r := a.plain(t, "cmd", "wheel", "fun", "key.list_all", "key", k, "user", user); r.Map("data") != nil {
			faults = append(faults, "wheel as "+user+" answered")
		}
	}

	if r := a.node.Salt(t, "web1", "test.ping"); r.Code != 0 {
		faults = append(faults, "root is refused: "+r.Err)
	}

	line(t, "5", "the key of a publisher_acl user as root", strings.Join(outcome, ", "), faults...)
}

// replay: 13. What was captured does nothing after a restart.
func (a *arena) replay(t *testing.T) {
	m := a.evil(t)
	b := a.listen(t)
	var captured [][]byte
	for _, x := range []struct {
		cmd    string
		fields []any
	}{
		{"_minion_event", []any{"tag", "custom/once", "data", value.NewMap("x", 1), "pretag", nil}},
		{"minion_pub",
			[]any{"tgt", "web1", "tgt_type", "glob", "fun", "test.ping", "arg", []any{}, "ret", "", "tmo", 5}},
	} {
		p, _, err := m.Pack(x.cmd, x.fields...)
		if err == nil {
			_, err = m.Send(within(t), p)
		}

		if err != nil {
			t.Fatal(err)
		}

		captured = append(captured, p)
	}

	b.until("custom/once")
	var before int
	again := func() (faults []string) {
		b := a.listen(t)
		m := a.minion(t, "evil")
		defer m.Close()

		if err := m.SignIn(within(t)); err != nil {
			t.Fatal(err)
		}

		for _, p := range captured {
			_, _ = m.Send(within(t), p)
		}

		m.Close() // whatever it answered
		if err := m.SignIn(within(t)); err != nil {
			t.Fatal(err)
		}

		if _, err := m.Ask(within(t), "_minion_event", "tag", "custom/last", "data", value.NewMap(),
			"pretag", nil); err != nil {
			t.Fatal(err)
		}

		seen, _ := b.until("custom/last")
		for _, tag := range seen {
			if tag == "custom/once" {
				faults = append(faults, "the event came again")
			}
			if strings.HasPrefix(tag, "salt/job/") && strings.HasSuffix(tag, "/new") {
				faults = append(faults, "a second job was started: "+tag)
			}
		}

		before += len(captured)
		return faults
	}

	faults := again()
	s, err := a.service(t, "master")
	if err != nil {
		t.Fatal(err)
	}

	_ = syscall.Kill(s.PID, syscall.SIGTERM)
	lab.Eventually(t, 60*time.Second, "the master is back", func() error {
		now, err := a.service(t, "master")
		if err == nil && (now.PID == 0 || now.PID == s.PID || now.State != "running") {
			err = fmt.Errorf("%+v", now)
		}
		return err
	})

	a.working(t, 60*time.Second)
	for _, f := range again() {
		faults = append(faults, "after a restart: "+f)
	}

	line(t, "13", "requests captured and sent again", fmt.Sprintf("%d, at once and after a restart", before), faults...)
}

// stolenModule notes that it ran and then gives way to the real one.
const stolenModule = `import sys, os
open('%s/by-cwd', 'w').write('x')
sys.path = [p for p in sys.path if p and os.path.realpath(p) != os.path.dirname(os.path.realpath(__file__))]
del sys.modules['msgpack']
import msgpack
`

// standalone proves 11 and 20 against a master of its own, with options and a
// working directory that a node does not have.
func standalone(t *testing.T) {
	s := lab.NewSites(t, 1)[0]
	dir := lab.Dir(t)
	s.Options = map[string]any{
		"pillar_source_merging_strategy": "aggregate", "file_recv": true, "pillar_opts": true, "sharedsecret": secret,
		"pillar_roots": map[string]any{
			"base":    []string{s.Dir + "/srv/pillar"},
			"__env__": []string{s.Dir + "/srv/pillar/__env__"},
		},
	}

	s.Configure(t)
	key := newPrivate(t)
	pub, err := crypt.PublicPEM(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}

	cwd := filepath.Join(dir, "cwd")
	lab.WriteTree(t, s.Dir, map[string]string{"pki/minions/evil": pub,
		"srv/pillar/top.sls": "base:\n  '*':\n    - rendered\n", "srv/pillar/rendered.sls": "{% set who = grains['id'] %}\nrendered: for {{ who }}\n"})
	lab.WriteTree(t, cwd, map[string]string{"msgpack.py": fmt.Sprintf(stolenModule, dir)})
	s.Proc = lab.Start(t, "salt-master", filepath.Join(s.Dir, "master.out"), "/bin/sh", "-c",
		`cd "$1" && exec "$2" -c "$3"`, "sh", cwd, lab.Bin(t, "salt-master"), filepath.Join(s.Dir, "etc"))
	var m *minion.Minion
	lab.Eventually(t, 60*time.Second, "the master answers", func() error {
		text, err := os.ReadFile(s.Dir + "/pki/master.pub")
		if err != nil {
			return err
		}

		master, err := crypt.ParsePublic(text)
		if err != nil {
			return err
		}

		if m, err = minion.New(minion.Config{
			ID:      "evil",
			Key:     key,
			Master:  master,
			Request: net.JoinHostPort(s.Addr, "4506"),
			Publish: net.JoinHostPort(s.Addr, "4505"),
		}); err != nil {
			return err
		}

		if err = m.SignIn(within(t)); err != nil {
			m.Close()
		}

		return err
	})
	defer m.Close()

	v, err := m.Pillar(within(t))
	var f20, f11 []string
	if _, e := os.Stat(dir + "/by-cwd"); e == nil {
		f20 = append(f20, "msgpack.py of the working directory ran")
	} else if err != nil || v.Str("rendered") != "for evil" {
		f20 = append(f20, fmt.Sprintf("no pillar: %v, %.200v", err, v))
	}

	line(t, "20", "msgpack.py in the master's working directory", "", f20...)
	if err == nil && strings.Contains(fmt.Sprint(v), secret) {
		f11 = append(f11, "sharedsecret in a pillar with pillar_opts")
	}

	push(t, m, "pe/top.sls",
		fmt.Sprintf("#!py\ndef run():\n    open('%s/by-env', 'w').write('x')\n    return {}\n", dir))
	answer, err := m.Ask(within(t), "_pillar", "grains", value.NewMap("id", "evil"), "saltenv", nil, "pillarenv", "../../cache/minions/evil/files/pe",
		"pillar_override", value.NewMap(), "extra_minion_data", value.NewMap(), "ver", "2")

	if _, e := os.Stat(dir + "/by-env"); e == nil {
		f11 = append(f11, "a pushed file ran as a pillar")
	}

	line(t, "11", "pillarenv outside of its folder; pillar_opts",
		fmt.Sprintf("aggregate: answered %.40v %.60v", answer, err), f11...)
}
