package users

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/internal/audit"
	"saltern/master/event"
	"saltern/master/internal/eauth"
	"saltern/master/internal/mastertest"
	"saltern/master/jobs"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// fireAsSalt fires an event as Salt's Python tools do, and waits until it is on the bus.
func fireAsSalt(r *mastertest.Master, tag string, data *value.Map) {
	r.T.Helper()
	sub := r.Parts.Bus.Subscribe("test", 10, func(t string) bool { return t == tag })
	defer sub.Close()
	c, err := net.Dial("unix", r.Path("run", "master_event_pull.ipc"))
	check.Must(r.T, err)
	defer c.Close()
	_, err = c.Write(mastertest.SaltFrame(r.T, tag, data))
	check.Must(r.T, err)
	select {
	case <-sub.C:
	case <-await.Context(r.T).Done():
		r.T.Fatalf("%s does not come to the bus", tag)
	}
}

// batchState is the state of a batch of which nobody has run anything yet.
func batchState(jid, driver string) *value.Map {
	return value.NewMap("jid", jid, "driver", driver, "all_minions", []any{"min1"}, "pending", []any{"min1"}, "active", value.NewMap(),
		"done", value.NewMap(), "failed", value.NewMap(), "wait", []any{}, "batch_size", 10, "fun", "cmd.run", "arg", []any{"id > /tmp/f"},
		"kwargs", value.NewMap(), "tgt", "*", "tgt_type", "glob", "failhard", false, "batch_wait", 0, "timeout", 60, "gather_job_timeout", 10,
		"last_progress", 1.0, "created", 1.0, "halted", false, "halted_reason", nil, "ret", "", "user", "root")
}

const evaMaySend = "external_auth: {auto: {eva: ['@runner': [event.send]]}}\n"

// callEventSend calls event.send as eva, and returns the event of its end.
func callEventSend(r *mastertest.Master, tag string, data *value.Map) *value.Map {
	r.T.Helper()
	sub := r.Parts.Bus.Subscribe("test", 1000, event.Prefix("salt/run/"))
	defer sub.Close()

	answer, _ := r.AskInClear("runner", "fun", "event.send", "kwarg", value.NewMap("tag", tag, "data", data),
		"eauth", "auto", "username", "eva").(*value.Map)
	for {
		select {
		case e := <-sub.C:
			if e.Tag == answer.Str("tag")+"/ret" {
				return e.Data
			}
		case <-await.Context(r.T).Done():
			r.T.Fatalf("event.send does not end: %v", answer)
		}
	}
}

// TestEventSendIsNoOrder: who may call event.send has the master run nothing, and is told
// so; tags on which nobody acts are his (second audit, 1).
func TestEventSendIsNoOrder(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, evaMaySend)
	n := r.AcceptedMinion("min1", "min6")
	sub := r.Subscribe()
	r.ListenToBus()
	const jid = "20260102030405678901"
	for _, tag := range []string{"salt/batch/" + jid + "/new", "salt/batch/" + jid + "/stop",
		"salt/job/" + jid + "/ret/min1", "salt/job/" + jid + "/publish", "salt/job/" + jid + "/new",
		"salt/key", "salt/auth", "key", eauth.LockTag, "master/git/fetch", "master/pillar_cache/clear", "salt/reactors/manage/add", "salt/run/" + jid + "/salt/reactors/manage/add", "cluster/peer/join",
		// tools look at the beginning
		"rotate_cluster_aes_key", "salt/run/" + jid + "/ret", "salt/run/" + jid + "/ret/x",
		"salt/job/" + jid + "/error", "salt/job/" + jid +
			"/note", "syndic/s1/" + jid, jid, "salt/batch/" + jid + "/note", "salt/batch/x/y/halted"} {
		ret := callEventSend(r, tag, value.NewMap("state", batchState(jid, "master"), "jid", jid, "id", "min1", "key", "x"))
		if text, _ := ret.Value("return").(string); ret.Bool("success") || !strings.Contains(text, tag) ||
			!strings.Contains(text, "myapp/") {
			t.Errorf("%s: %v", tag, ret)
		}
	}

	for _, tag := range []string{"my/deploy/done", "salt/my/deploy", "salt/minion/web1/start",
		"master/git/pushed", "salt/jobs", "salty", "keys"} {
		if ret := callEventSend(r, tag, value.NewMap("x", 1)); !ret.Bool("success") || ret.Value("return") != true {
			t.Errorf("%s: %v", tag, ret)
		}
	}

	r.Publish("*", "test.ping") // comes after whatever the events had caused
	for _, p := range sub.Published() {
		if load := n.OpenPublication(p); load.Str("fun") != "test.ping" {
			t.Errorf("an event had the minions run %v", load)
		}
	}

	var own int
	for _, e := range r.NewEvents() {
		if strings.HasPrefix(e.Tag, "my/") || strings.HasPrefix(e.Tag, "salt/my/") {
			own++
		}
	}

	if own != 2 {
		t.Errorf("%d events of own tags", own)
	}
}

// TestEventSendLocksNobodyOut: a user of one master keeps no administrator out of another
// one of the cluster, and nothing else that somebody fires here is done there; what this
// master fires is (second audit, 1).
func TestEventSendLocksNobodyOut(t *testing.T) {
	t.Parallel()
	ms := mastertest.StartCluster(t, 2,
		"external_auth: {sharedsecret: {admin: ['.*']}, auto: {eva: ['@runner': [event.send]]}}\nsharedsecret: right\n")
	mastertest.AwaitLinks(t, ms)
	a, b := ms[0], ms[1]
	sub := b.Subscribe()
	events := b.Parts.Bus.Subscribe("test", 10000, nil)
	defer events.Close()

	home := netip.MustParseAddr("198.51.100.7")
	const jid = "20260102030405678901"
	data := value.NewMap("eauth", "sharedsecret", "user", "admin", "address", home.String(), "until", time.Now().Add(time.Hour).Unix(), "jid", jid, "id", "web1", "act", "accept",
		"result", true, "fun", "cmd.run", "arg", []any{}, "tgt", "*", "tgt_type", "glob", "ret", "", "minions", []any{"web1"}, "return", 1, "state", batchState(jid, "master"), "key", a.Key)

	// A user, by all that he may fire; a tool of Salt; and everybody whom the bus knows.
	callEventSend(a, eauth.LockTag, data)
	fireAsSalt(a, eauth.LockTag, data)
	reserved := []string{eauth.LockTag, "salt/job/" + jid + "/new", "salt/job/" + jid + "/publish",
		"salt/job/" + jid + "/ret/web1", "rotate_cluster_aes_key", "salt/key",
		"salt/auth", "master/git/serving", "master/git/fetch", "master/git/reload", "master/pillar_cache/clear", "key", "cluster/peer/join"}
	for _, origin := range []event.Origin{event.Socket, event.Runner, event.Hook, event.Minion} {
		for _, tag := range append(reserved, "salt/batch/"+jid+"/new", "salt/batch/"+jid+"/stop",
			"salt/reactors/manage/add", "salt//key", "salt/job/"+jid+"/publish/") {
			if origin == event.Socket && (tag == "salt/key" || tag == "salt/auth") {
				continue // a tool that has changed a key
			}
			check.Must(t, a.Parts.Bus.Relay(event.Event{Tag: tag, Data: data, Origin: origin, Minion: "db1"}))
		}
	}

	check.Must(t, a.Parts.Bus.FireBy(event.Runner, "my/last", value.NewMap()))
	came := map[string]bool{}
	for !came["my/last"] {
		select {
		case e := <-events.C:
			came[e.Tag] = true
			if e.Origin == event.Peer && slices.Contains(reserved, e.Tag) && e.Maker != event.Internal {
				t.Errorf("%s of a %s came to the other master", e.Tag, e.Maker)
			}
		case <-await.Context(t).Done():
			t.Fatalf("without the last event: %v", came)
		}
	}

	if !came["salt/batch/"+jid+"/new"] || !came["salt//key"] {
		t.Errorf("what orders nothing there is missing: %v", came)
	}

	if s := b.Parts.Callers.Auth.Stats().Lockout; s.Locked != 0 {
		t.Errorf("%d users are locked out", s.Locked)
	}

	if b.LogInFrom("admin", "right", home) == "" {
		t.Error("the administrator is locked out")
	}

	if n := len(sub.Published()); n != 0 {
		t.Errorf("%d jobs were published", n)
	}

	if load, _ := b.Parts.Jobs.Load(await.Context(t), jid); load != nil {
		t.Errorf("a job is kept: %v", load)
	}

	// The same of the master itself.
	check.Must(t, a.Parts.Bus.Fire("salt/job/"+jid+"/new", data))
	check.Must(t, a.Parts.Bus.Fire("salt/job/"+jid+"/publish", data))
	check.Must(t, a.Parts.Bus.Fire(eauth.LockTag, data))
	published := 0
	await.That(t, "the lock, the job and its load", func() bool {
		load, _ := b.Parts.Jobs.Load(await.Context(t), jid)
		published += len(sub.Published())
		return b.Parts.Callers.Auth.Stats().Lockout.Locked == 1 && load != nil && published == 1
	})
}

// keptBatch leaves the state of a batch in the folder of its job, as Salt's salt --async
// does.
func keptBatch(r *mastertest.Master, state *value.Map) (path string) {
	r.T.Helper()
	dir, err := jobs.Folder(r.Path("cache", "jobs"), r.Parts.Options.HashType, state.Str("jid"))
	check.Must(r.T, err)
	check.Must(r.T, os.MkdirAll(dir, 0o755))
	packed, err := msgpack.Marshal(state, msgpack.Modern)
	check.Must(r.T, err)
	path = filepath.Join(dir, ".batch.p")
	check.Must(r.T, os.WriteFile(path, packed, 0o600))
	return path
}

// TestBatchesAreProven: a batch is gone on with by the file of the master's account, or by
// its key, and in the name of whom the master knows; what else is in an event has no
// effect (second audit, 1).
func TestBatchesAreProven(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "")
	n := r.AcceptedMinion("min1", "min6")
	sub := r.Subscribe()
	serial := 0
	next := func() string { serial++; return fmt.Sprintf("202601020304056789%02d", serial) }
	tag := func(jid, what string) string { return "salt/batch/" + jid + "/" + what }

	// ran are the users in whose name jobs were published since the last call. A batch of
	// the master is looked at last.
	ran := func() (users []string) {
		t.Helper()
		last := next()
		keptBatch(r, batchState(last, "master"))
		fireAsSalt(r, tag(last, "new"), value.NewMap())
		await.That(t, "the last batch", func() bool {
			for _, p := range sub.Published() {
				load := n.OpenPublication(p)
				if load.Str("jid") == last {
					return true
				}
				users = append(users, load.Str("user"))
			}

			return false
		})

		return users
	}

	for name, key := range map[string]any{
		"no key":       nil,
		"an empty one": "",
		"another":      r.Key + "x",
		"a number":     int64(1),
	} {
		jid := next()
		fireAsSalt(r, tag(jid, "new"), value.NewMap("state", batchState(jid, "master"), "key", key))
		if got := ran(); len(got) > 0 {
			t.Errorf("%s: ran for %q", name, got)
		}
	}

	for _, by := range []event.Origin{event.Runner, event.Hook, event.Peer, event.Minion, event.Internal} {
		jid, kept := next(), next()
		keptBatch(r, batchState(kept, "master"))
		check.Must(t,
			r.Parts.Bus.Relay(event.Event{
				Tag:    tag(jid, "new"),
				Data:   value.NewMap("state", batchState(jid, "master"), "key", r.Key),
				Origin: by,
				Minion: "min1",
			}))

		check.Must(t, r.Parts.Bus.Relay(event.Event{Tag: tag(kept, "new"), Data: value.NewMap(), Origin: by, Minion: "min1"}))
		if got := ran(); len(got) > 0 {
			t.Errorf("by a %s: ran for %q", by, got)
		}
	}

	for name, open := range map[string]func(path string) error{
		"a file of everybody":    func(path string) error { return os.Chmod(path, 0o666) },
		"a file of another user": func(path string) error { return os.Chown(path, 65534, -1) },
		"a link": func(path string) error {
			return errors.Join(os.Rename(path, path+"x"),
				os.Symlink(path+"x", path))
		},
	} {
		jid := next()
		if open(keptBatch(r, batchState(jid, "master"))) != nil {
			continue // not root
		}

		fireAsSalt(r, tag(jid, "new"), value.NewMap())
		if got := ran(); len(got) > 0 {
			t.Errorf("%s: ran for %q", name, got)
		}
	}

	// By the key; the name in the state is what somebody says, that of the first part is known.
	jid := next()
	r.Publish("min1", "cmd.run", "jid", jid, "user", "ann")
	if got := ran(); !slices.Equal(got, []string{"ann"}) {
		t.Fatalf("the first part ran for %q", got)
	}

	fireAsSalt(r, tag(jid, "new"), value.NewMap("state", batchState(jid, "master"), "key", r.Key))
	if got := ran(); !slices.Equal(got, []string{"ann"}) {
		t.Errorf("by the key: ran for %q", got)
	}

	await.That(t, "both parts in the audit record", func() bool {
		p, err := audit.Read(t.Context(), "n1", audit.Query{Action: "job.publish"}, audit.MasterDir(r.Path("cache")))
		check.Must(t, err)
		parts := 0
		for _, rec := range p.Records {
			if rec.JID == jid && rec.User == "ann" && rec.Function == "cmd.run" && rec.Proof == audit.Key &&
				rec.Minions == 1 {
				parts++
			}
		}

		return parts == 2
	})
}

const sending = `
import salt.runners.event
import salt.utils.event

def fire(tag, data):
    with salt.utils.event.get_master_event(__opts__, __opts__["sock_dir"], listen=False) as bus:
        bus.fire_event(data, tag)
    salt.runners.event.__opts__ = __opts__
    salt.runners.event.send(tag, data)
    __jid_event__.fire_event(data, tag)
    return sorted(data)
`

// TestRunnersOfPythonGiveNoOrders: what a runner in Python fires for its caller is not taken
// for an event of a tool; batch.stop stops, and keys are changed (second audit, 1).
func TestRunnersOfPythonGiveNoOrders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(dir, "sending.py"), []byte(sending), 0o644))
	r := mastertest.Start(t, "saltern_renderer_python: "+mastertest.SaltPython(t)+"\nrunner_dirs: ["+dir+"]\n")
	r.AcceptedMinion("min1", "min6")
	sub := r.Parts.Bus.Subscribe("test", 1000, event.Prefix("salt/batch/", "my/", "salt/run/"))
	defer sub.Close()

	origin := func(tag string) (o event.Origin, data *value.Map) {
		for {
			select {
			case e := <-sub.C:
				if strings.HasSuffix(e.Tag, tag) {
					return e.Origin, e.Data
				}
			case <-await.Context(t).Done():
				t.Fatalf("%s does not come", tag)
			}
		}
	}

	call := func(fun string, args ...any) any {
		t.Helper()
		v, err := r.Parts.Runs.Call(await.Context(t), fun, args, nil)
		check.Must(t, err)
		return v
	}

	// A batch under way, which waits for a minion.
	const jid = "20260102030405678901"
	state := batchState(jid, "master")
	state.Set("pending", []any{})
	state.Set("active", value.NewMap("min1", float64(time.Now().Unix())))
	state.Set("timeout", 600)
	keptBatch(r, state)
	fireAsSalt(r, "salt/batch/"+jid+"/new", value.NewMap())
	halted := func() bool { return strings.Contains(r.Log.String(), "batch is halted") }

	stop := "salt/batch/" + jid + "/stop"
	if got := call("sending.fire", stop, value.NewMap("reason", "x")); !slices.Equal(got.([]any),
		[]any{"_stamp", "reason"}) {
		t.Errorf("the runner is left with %v", got)
	}

	for range 3 {
		if o, data := origin(stop); o != event.Runner || data.Str("reason") != "x" || data.Len() != 2 {
			t.Errorf("made by %s: %v", o, data)
		}
	}

	if halted() {
		t.Error("a runner stops somebody's batch")
	}

	got, err := r.Parts.Runs.Call(await.Context(t), "batch.stop", []any{jid}, nil)
	if err != nil || got != true {
		t.Errorf("batch.stop: %v, %v", got, err)
	}

	await.That(t, "the end of the batch", halted)
}

// TestKeysAreNotOnTheBus: a key by which an event proves itself reaches no reader of the
// bus, from a tool and from a peer (second audit, 3).
func TestKeysAreNotOnTheBus(t *testing.T) {
	t.Parallel()
	r := mastertest.Start(t, "reactor:\n  - 'a/*': /nowhere/a.sls\n")
	r.ListenToBus()
	const jid = "20260102030405678901"
	for _, tag := range []string{"salt/run/" + jid + "/salt/reactors/manage/list",
		"salt/reactors/manage/is_leader", "salt/reactors/manage", "salt/batch/" + jid + "/new"} {
		fireAsSalt(r, tag, value.NewMap("key", r.Key, "x", 1, "_stamp", "s"))
	}

	fireAsSalt(r, "last", value.NewMap("key", "is nobody's secret"))
	want := map[string]bool{
		"last":                              true,
		"salt/reactors/manage/list-results": true,
		"salt/reactors/manage/leader/value": true,
	}

	await.That(t, "the last event, and the answers of the reactor", func() bool {
		for _, e := range r.NewEvents() {
			if text := fmt.Sprint(mastertest.PlainMap(e.Data)); strings.Contains(text, r.Key) {
				t.Errorf("%s shows the key: %s", e.Tag, text)
			}
			if e.Tag == "last" && e.Data.Str("key") == "" {
				t.Error("the event of somebody else has lost its key")
			}
			delete(want, e.Tag)
		}

		return len(want) == 0
	})
}
