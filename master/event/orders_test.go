package event

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"saltern/test/await"
)

const orderJID = "20260102030405678901"

// tagOf is a tag by which an order is given.
var tagOf = [orders][]string{
	JobStart:     {"salt/job/" + orderJID + "/new"},
	JobPublish:   {"salt/job/" + orderJID + "/publish"},
	JobReturn:    {"salt/job/" + orderJID + "/ret/web1"},
	SyndicReport: {"syndic/web1/" + orderJID, "syndic/web1/start", "syndic/web1/salt/job/" + orderJID + "/ret/db1"},
	BatchKeep: {"salt/batch/" + orderJID + "/new", "salt/batch/" + orderJID + "/progress",
		"salt/batch/" + orderJID + "/halted", "salt/batch/" + orderJID + "/complete"},
	BatchAdopt:    {"salt/batch/" + orderJID + "/new"},
	BatchDrive:    {"salt/batch/" + orderJID + "/new"},
	BatchStop:     {"salt/batch/" + orderJID + "/stop"},
	ReactorManage: {"salt/reactors/manage/add", "salt/run/" + orderJID + "/salt/reactors/manage/set_leader"},
	KeyChange:     {"salt/key", "salt/auth"},
	KeyRotate:     {"rotate_cluster_aes_key"},
	KeyRotated:    {"key"},
	LoginLock:     {"master/login/locked"},
	GitFollow:     {"master/git/serving", "master/git/fetch", "master/git/reload"},
	PillarClear:   {"master/pillar_cache/clear"},
	ReactorRules:  {"master/reactor/rules"},
	RunKeep:       {"master/run/kept"},
	RunPause:      {"master/run/pause", "master/run/paused"},
	BatchAsk:      {"master/batch/ask", "master/batch/answer"},
	ClusterTalk:   {"cluster/peer/join"},
	JobTalk: {"salt/job/" + orderJID + "/error", "salt/job/" + orderJID + "/prog/web1/0",
		"salt/job/" + orderJID + "/x", "syndic/", orderJID},
	BatchTalk: {"salt/batch/" + orderJID + "/note", "salt/batch/" + orderJID + "/x/halted"},
	RunResult: {"salt/run/" + orderJID + "/ret", "salt/run/" + orderJID + "/retx",
		"salt/run/" + orderJID + "/ret/x", "salt/wheel/" + orderJID + "/new"},
}

// spellings are a tag, and what somebody tries who wants it to be taken for it.
func spellings(tag string) []string {
	return []string{tag, tag + "/", "/" + tag, tag + " ", " " + tag, tag + "/x", "x/" + tag, tag + ".",
		strings.ToUpper(tag), strings.ToUpper(tag[:1]) + tag[1:],
		strings.Replace(tag, "/", "//", 1), strings.ReplaceAll(tag, "/", "//"), strings.Replace(tag, "/",
			"/./", 1), strings.Replace(tag, "/", "/x/../", 1),
		strings.Replace(tag, "/", "\u2215", 1), strings.ReplaceAll(tag, "/", "%2f"), strings.Replace(tag,
			"a", "\u0430", 1), tag + "\u200b", "\ufeff" + tag, tag + "\x00", tag + "\n",
		strings.Replace(tag, orderJID, strings.Repeat("9", 3000), 1), strings.Replace(tag, orderJID,
			orderJID+"/"+orderJID, 1)}
}

// maker is who may have made an event, as the bus of a master sees it.
type maker struct {
	name  string
	event Event
}

func makers() (all []maker) {
	for _, o := range []Origin{Internal, Socket, Runner, Hook, Unknown} {
		if o != Unknown {
			all = append(all, maker{o.String(), Event{Origin: o}})
		}
		all = append(all, maker{"peer's " + o.String(), Event{Origin: Peer, Maker: o}})
	}
	for _, id := range []string{"web1", "db1", ""} {
		all = append(all, maker{"minion " + id, Event{Origin: Minion, Minion: id}},
			maker{"peer's minion " + id, Event{Origin: Peer, Maker: Minion, Minion: id}})
	}
	return append(all, maker{"peer's peer", Event{Origin: Peer, Maker: Peer}},
		maker{"a maker of later", Event{Origin: Unknown + 1}})
}

// TestOrders tries all tags, in all spellings, of all makers: a maker that is not named here orders
// nothing (second audit, 1).
func TestOrders(t *testing.T) {
	type givers struct {
		order Order
		by    []string
		keyed bool // and with the key of the master's user
	}

	for _, g := range []givers{
		{order: JobStart, by: []string{"peer's internal", "peer's unknown"}},
		{order: JobPublish, by: []string{"peer's internal", "peer's unknown"}},
		{order: JobReturn, by: []string{"minion web1", "peer's minion web1", "peer's unknown"}},
		{order: SyndicReport, by: []string{"minion web1", "peer's minion web1", "peer's unknown"}},
		{order: BatchKeep, by: []string{"socket"}},
		{order: BatchAdopt, by: []string{"socket"}},
		{order: BatchDrive, by: []string{"socket"}, keyed: true},
		{order: BatchStop, by: []string{"socket"}},
		{order: ReactorManage, by: []string{"internal", "socket", "runner"}, keyed: true},
		{order: KeyChange, by: []string{"peer's internal", "peer's socket", "peer's unknown"}},
		{order: KeyRotate, by: []string{"peer's internal", "peer's unknown"}},
		{order: KeyRotated},
		{order: LoginLock, by: []string{"peer's internal"}},
		{order: GitFollow, by: []string{"peer's internal"}},
		{order: PillarClear, by: []string{"peer's internal"}},
		{order: ReactorRules, by: []string{"peer's internal"}},
		{order: RunKeep, by: []string{"peer's internal"}},
		{order: ClusterTalk},
		{order: JobTalk},
		{order: BatchTalk},
		{order: RunResult},
	} {
		for _, tag := range tagOf[g.order] {
			t.Run(tag, func(t *testing.T) {
				for _, spelled := range spellings(tag) {
					if CheckTag(spelled) != nil {
						continue
					}

					for _, m := range makers() {
						listed := slices.Contains(g.by, m.name)
						for key, right := range map[any]bool{
							nil:        false,
							"":         false,
							"Secret":   false,
							7:          false,
							"secret":   true,
							"secret\n": true,
						} {
							e := m.event
							e.Tag, e.Data = spelled, data("key", key)
							ok, err := MayOrderBy(onBus(t, e), g.order, func() (string, error) { return "secret", nil })
							may := listed && (right || !g.keyed)
							if err != nil || ok && !may || spelled == tag && ok != may {
								t.Errorf("%q of %s, key %v: ordered %v, %v", spelled, m.name, key, ok, err)
							}

							if MayOrder(onBus(t, e), g.order) != (ok && !g.keyed) {
								t.Errorf("%q of %s, key %v: without a key it is another answer", spelled, m.name, key)
							}
						}
					}
				}

				if Reserved(tag) == "" {
					t.Error("event.send may use it")
				}
			})
		}
	}
}

// TestNoKeyNoOrder: while the key of the master's user cannot be read, or is empty, no event orders
// an action by that key.
func TestNoKeyNoOrder(t *testing.T) {
	e := onBus(t, Event{Tag: "salt/reactors/manage/list", Data: data("key", ""), Origin: Socket})
	if ok, _ := MayOrderBy(e, ReactorManage, func() (string, error) { return "", nil }); ok {
		t.Error("an empty key proves something")
	}
	if ok, err := MayOrderBy(e, ReactorManage, func() (string, error) { return "", io.ErrUnexpectedEOF }); ok || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v, %v", ok, err)
	}
}

// TestFreeTags: no program acts on these tags, so everybody may use them.
func TestFreeTags(t *testing.T) {
	for _, tag := range []string{"my/deploy/done", "salt/my/deploy", "salt/minion/web1/start",
		"salt/beacon/web1/load", "salt/netapi/hook/x", "salt/cloud/web1/created", "salt/batch",
		"salt/runs/x", "salt/jobs/" + orderJID +
			"/new", "salt/job", "syndic", orderJID[:19], "master/git/pushed", "master", "keys", "key/x", "clusters/x", "salt/keys", "new", "ret"} {
		if does := Reserved(tag); does != "" {
			t.Errorf("%s is kept for %s", tag, does)
		}

		for _, m := range makers() {
			e := m.event
			e.Tag, e.Data = tag, data()
			for o := range orders {
				if MayOrder(e, o) {
					t.Errorf("%s of %s orders %s", tag, m.name, rules[o].action)
				}
			}

			if !Travels(e.AtPeer()) {
				t.Errorf("%s of %s stays here", tag, m.name)
			}
		}
	}
}

// TestKeysAreTaken: neither subscribers nor readers of the sockets get a key in an event, nor what is withheld from
// them. The subscriber that acts on it gets the latter.
func TestKeysAreTaken(t *testing.T) {
	b, s := serve(t, Config{})
	l := listenTo(t, s)
	sub := b.Subscribe("s", 10, nil)
	sender := NewSender(s.cfg.Dir)
	defer sender.Close()

	tags := []string{"salt/reactors/manage/add", "salt/run/1/salt/reactors/manage/list",
		"salt/reactors/manage", "salt/batch/1/new", "my/tag"}
	for _, tag := range tags {
		d := data("key", "secret", "a", 1, WithheldField, data("password", "secret"))
		if err := sender.Fire(await.Context(t), tag, d); err != nil {
			t.Fatal(err)
		}

		if d.Str("key") == "" {
			t.Errorf("%s: the caller has lost his key", tag)
		}

		want := ""
		if tag == "my/tag" {
			want = "secret"
		}

		read, err := l.Next(await.Context(t))
		if inside := <-sub.C; err != nil || read.Data.Str("key") != want || inside.Data.Str("key") != want ||
			inside.Data.Len() != read.Data.Len() || !strings.HasSuffix(tag, inside.Tag) {
			t.Errorf("%s: %v and %v, %v", tag, inside.Data, read.Data, err)
		} else if shown := read.Data.Map(WithheldField).Len() > 0; shown != (tag == "my/tag") ||
			shown == (inside.Withheld().Str("password") == "secret") {
			t.Errorf("%s: readers see %v, withheld is %v", tag, read.Data, inside.Withheld())
		}
	}
}

// TestOriginsOfTheSocket: events that a runner in Python or salt-api fires do not count as events
// of a tool.
func TestOriginsOfTheSocket(t *testing.T) {
	b, s := serve(t, Config{})
	sub := b.Subscribe("s", 10, nil)
	sender := NewSender(s.cfg.Dir)
	defer sender.Close()

	for _, c := range []struct {
		tag  string
		data []any
		want Origin
	}{
		{"salt/batch/1/new", nil, Socket},
		{"salt/batch/1/new", []any{RunnerMark, true}, Runner},
		{"salt/batch/1/new", []any{RunnerMark, "VALUE_TRIMMED"}, Runner},
		{"salt/netapi/hook/salt/batch/1/new", nil, Hook},
		{"salt/netapi/hook", nil, Hook},
		{"salt/netapi/hook/x", []any{RunnerMark, false}, Runner},
	} {
		if err := sender.Fire(await.Context(t), c.tag, data(c.data...)); err != nil {
			t.Fatal(err)
		}

		e := <-sub.C
		body, err := e.Body()
		if _, marked := e.Data.Get(RunnerMark); e.Origin != c.want || marked || err != nil ||
			strings.Contains(string(body), RunnerMark) {
			t.Errorf("%s %v: %s, %v, %v", c.tag, c.data, e.Origin, e.Data, err)
		}
	}
}

// TestOrdersAreInTheDocs: docs/architecture.md contains the table of rules.
func TestOrdersAreInTheDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}

	here := map[Origin]string{
		Internal: "the master",
		Socket:   "tools",
		Runner:   "runners",
		Hook:     "hooks",
		Minion:   "that minion",
	}

	peers := map[Origin]string{
		Internal: "a master",
		Socket:   "its tools",
		Minion:   "that minion",
		Unknown:  "Salt's masters",
	}

	words := func(list []Origin, names map[Origin]string, more string) string {
		var out []string
		for _, o := range list {
			out = append(out, names[o])
		}

		if len(out) == 0 {
			return "–"
		}

		return strings.Join(out, ", ") + more
	}

	for _, r := range rules {
		more := ""
		if r.needsKey {
			more = ", with the key"
		}

		row := fmt.Sprintf("| %s | %s | %s | %s |\n", r.tags, r.action, words(r.origins, here, more),
			words(r.peerMakers, peers, ""))
		if !strings.Contains(string(text), row) {
			t.Errorf("docs/architecture.md lacks\n%s", row)
		}
	}
}

// onBus is an event as a subscriber gets it.
func onBus(t *testing.T, e Event) Event {
	t.Helper()
	b := newBus()
	sub := b.Subscribe("s", 1, nil)
	if err := b.Relay(e); err != nil {
		t.Fatal(err)
	}
	return <-sub.C
}
