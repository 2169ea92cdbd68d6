package raft

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"saltern/master/cluster/wire"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// world runs nodes with lost, late and repeated messages.
type world struct {
	t       *testing.T
	rnd     *rand.Rand
	now     time.Time
	ids     []string
	members []Member
	nodes   map[string]*Node
	saved   map[string][]byte
	down    map[string]bool
	mail    []Out
	loss    float64
	leaders map[int64]string
	commits map[int64]string // index → entry
}

func newWorld(t *testing.T, seed uint64, n int) *world {
	w := &world{
		t:       t,
		rnd:     rand.New(rand.NewPCG(seed, 1)),
		now:     time.Unix(1e9, 0),
		nodes:   map[string]*Node{},
		saved:   map[string][]byte{},
		down:    map[string]bool{},
		leaders: map[int64]string{},
		commits: map[int64]string{},
	}

	for i := range n {
		id := fmt.Sprintf("10.0.0.%d", i+1)
		w.ids = append(w.ids, id)
		w.members = append(w.members, Member{ID: id, Own: i > 0})
		w.boot(id)
	}

	return w
}

// boot starts a node with what it has saved.
func (w *world) boot(id string) {
	st := State{}
	if b := w.saved[id]; b != nil {
		var err error
		if st, err = ParseState(b); err != nil {
			w.t.Fatal(err)
		}
	}
	w.nodes[id] = New(Config{ID: id, State: st, Token: func() string { return "t" },
		Jitter: func(d time.Duration) time.Duration { return time.Duration(w.rnd.Int64N(int64(d))) }})
	delete(w.down, id)
}

func (w *world) took(id string, out []Out) {
	n := w.nodes[id]
	if st, dirty := n.Dirty(); dirty {
		b, err := st.Pack()
		if err != nil {
			w.t.Fatal(err)
		}
		w.saved[id] = b
	}

	for _, o := range out {
		if w.rnd.Float64() >= w.loss {
			w.mail = append(w.mail, o)
			if w.rnd.Float64() < w.loss/2 {
				w.mail = append(w.mail, o)
			}
		}
	}

	if n.role == leader {
		if l := w.leaders[n.state.Term]; l != "" && l != id {
			w.t.Fatalf("term %d has two leaders, %s and %s", n.state.Term, l, id)
		}
		w.leaders[n.state.Term] = id
	}

	for i := int64(0); i <= n.commit; i++ {
		text := fmt.Sprint(n.state.Log[i].Term, n.state.Log[i].Cmd)
		if c := w.commits[i]; c != "" && c != text {
			w.t.Fatalf("entry %d was committed as %s and as %s", i, c, text)
		}
		w.commits[i] = text
	}
}

func (w *world) run(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(Beat) {
		mail := w.mail
		w.mail = nil
		w.rnd.Shuffle(len(mail), func(i, j int) {
			if w.loss > 0 {
				mail[i], mail[j] = mail[j], mail[i]
			}
		})

		for _, o := range mail {
			if !w.down[o.To] && !w.down[o.Msg.Src] {
				w.took(o.To, w.nodes[o.To].Step(w.now, o.Msg))
			}
		}

		for _, id := range w.ids {
			if !w.down[id] {
				w.took(id, w.nodes[id].Tick(w.now, w.members, id == w.ids[len(w.ids)-1]))
			}
		}
	}
}

// settled tells the leader, when all agree on one and all is committed.
func (w *world) settled() string {
	lead := ""
	for id, n := range w.nodes {
		if w.down[id] {
			continue
		}
		if n.leader == "" || lead != "" && n.leader != lead || n.commit != n.lastIndex() || n.commit < 0 {
			return ""
		}
		lead = n.leader
	}
	return lead
}

func TestRaftSimulation(t *testing.T) {
	t.Parallel()
	seeds := uint64(20)
	if s := os.Getenv("SALTERN_SIM_SEEDS"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = n
	}

	for seed := range seeds {
		w := newWorld(t, seed, 3+int(seed%3))
		w.loss = 0.2
		for range 12 {
			w.run(time.Duration(w.rnd.IntN(20)) * time.Second)
			id := w.ids[w.rnd.IntN(len(w.ids))]
			if w.down[id] {
				w.boot(id)
			} else if w.rnd.IntN(2) == 0 {
				w.down[id] = true
			} else {
				w.boot(id) // restarted at once
			}
		}

		w.loss = 0
		for id := range w.down {
			w.boot(id)
		}

		for range 20 {
			w.run(10 * time.Second)
			if w.settled() != "" {
				break
			}
		}

		if w.settled() == "" {
			for id, n := range w.nodes {
				t.Logf("%s: %+v", id, n.Status())
			}
			t.Fatalf("seed %d: no agreement", seed)
		}
	}
}

// A master that joins later becomes a voter, one that was removed is one no
// more.
func TestRaftMembersChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 7, 3)
	w.run(30 * time.Second)
	lead := w.settled()
	if lead == "" {
		t.Fatal("no group was founded")
	}

	id := "10.0.0.9"
	w.ids, w.members = append(w.ids, id), append(w.members, Member{ID: id, Own: true})
	w.boot(id)
	w.run(10 * time.Second)

	if v, _ := w.nodes[id].groupMembers(); !slices.Contains(v, id) || w.settled() == "" {
		t.Fatalf("the new master is no voter: %v", v)
	}

	gone := w.ids[0]
	if gone == w.settled() {
		gone = w.ids[1]
	}

	w.down[gone] = true
	w.members = slices.DeleteFunc(w.members, func(m Member) bool { return m.ID == gone })
	w.run(30 * time.Second)
	if v, l := w.nodes[id].groupMembers(); slices.Contains(v, gone) || slices.Contains(l, gone) || len(v) != 3 {
		t.Fatalf("after the removal: voters %v, learners %v", v, l)
	}
}

// A Salt leader that cannot commit the log of an earlier term is replaced,
// so that its gate and those of others open.
func TestRaftLeaderThatCannotCommit(t *testing.T) {
	t.Parallel()
	salt, id := "10.0.0.1", "10.0.0.2"
	members := []Member{{ID: salt}, {ID: id, Own: true}}
	n := New(Config{
		ID:     id,
		State:  State{Term: 3, Log: []Entry{{Term: 3, Type: typeConfig, Cmd: config([]string{salt, id}, nil)}}},
		Token:  func() string { return "t" },
		Jitter: func(time.Duration) time.Duration { return 0 },
	})

	now := time.Unix(1e9, 0)
	var asked, led bool
	for range 300 {
		now = now.Add(Beat)
		out := n.Tick(now, members, false)
		if !led {
			out = append(out, n.Step(now, wire.Raft{Kind: "append-entries", Src: salt, Group: groupName,
				Payload: appendRequest(salt, 4, 3, 0, -1, nil)})...)
		}

		for _, o := range out {
			switch o.Msg.Kind {
			case "request-vote":
				asked = true
				n.Step(now, wire.Raft{Kind: "request-vote-reply", Src: salt, Group: groupName,
					Payload: value.NewMap("granted", true, "term", int64(5), "voter_id", salt)})
			case "append-entries":
				led = true
				p := o.Msg.Payload
				prev, _ := p.Int("prev_log_index")
				n.Step(now,
					wire.Raft{
						Kind:  "append-entries-reply",
						Src:   salt,
						Group: groupName,
						Payload: value.NewMap("term", int64(5),
							"our_term", int64(5), "success", true, "sent_log_index", prev+
								int64(len(p.List("entries")))),
					})
			}
		}
	}

	if !asked || !led || n.commit != 1 || n.state.Term != 5 {
		t.Fatalf("asked %v, led %v: %+v", asked, led, n.Status())
	}
}

// What Salt's masters sent each other is understood, and answered as they did.
func TestRaftVectors(t *testing.T) {
	t.Parallel()
	dir := "../../../testdata/cluster"
	read := func(name string) wire.Raft {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}

		f, err := wire.ParseFrame(b[4:])
		if err != nil {
			t.Fatal(err)
		}

		_, _, kind := wire.Classify(f.Tag)
		m, err := wire.ParseRaft(kind, f.Data)
		if err != nil {
			t.Fatal(err)
		}

		return m
	}

	founder, id := "10.27.12.13", "10.27.7.126"
	n := New(Config{
		ID:     id,
		Token:  func() string { return "t" },
		Jitter: func(time.Duration) time.Duration { return 0 },
	})

	now := time.Unix(1e9, 0)
	n.Tick(now, []Member{{ID: founder}, {ID: "10.27.3.73"}, {ID: id, Own: true}}, false)
	for _, x := range [][2]string{
		{"07-cluster-raft-pre-request-vote.bin", "08-cluster-raft-pre-request-vote-reply.bin"},
		{"09-cluster-raft-request-vote.bin", "10-cluster-raft-request-vote-reply.bin"},
		{"11-cluster-raft-append-entries.bin", "13-cluster-raft-append-entries-reply.bin"},
	} {
		ask, want := read(x[0]), read(x[1])
		got := n.Step(now, ask)
		if len(got) != 1 || got[0].To != founder || got[0].Msg.Kind != want.Kind ||
			!reflect.DeepEqual(got[0].Msg.Payload, want.Payload) {
			t.Errorf("%s: %+v, want %+v", x[0], got, want)
		}
	}

	// The founding configuration.
	got := n.Step(now, read("12-cluster-raft-append-entries-config.bin"))
	if v, _ := n.groupMembers(); len(got) != 1 || !got[0].Msg.Payload.Bool("success") || !slices.Contains(v, id) ||
		len(v) != 3 {
		t.Errorf("the configuration: %+v, %v", got, v)
	}

	st, dirty := n.Dirty()
	b, err := st.Pack()
	if err != nil || !dirty || st.Term != 1 || st.Voted != founder {
		t.Fatal(st, dirty, err)
	}

	if again, err := ParseState(b); err != nil || !reflect.DeepEqual(again, st) {
		t.Errorf("%+v, %v; want %+v", again, err, st)
	}

	// As sent by us, a configuration has Salt's form.
	ask := read("12-cluster-raft-append-entries-config.bin")
	mine := appendRequest(founder, 1, 0, -1, -1, n.state.Log)
	x, err1 := msgpack.Marshal(ask.Payload, msgpack.Modern)
	y, err2 := msgpack.Marshal(mine, msgpack.Modern)
	if err1 != nil || err2 != nil || string(x) != string(y) {
		t.Errorf("sent %x\nwant %x", y, x)
	}
}

func FuzzParseState(f *testing.F) {
	b, err := State{
		Term:  2,
		Voted: "10.0.0.1",
		Log:   []Entry{{Term: 1, Type: 1, Cmd: config([]string{"10.0.0.1"}, nil)}},
	}.Pack()
	if err != nil {
		f.Fatal(err)
	}

	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := ParseState(b); err == nil {
			New(Config{ID: "a", State: s}).Status()
		}
	})
}

// FuzzStep: nothing that a master sends breaks a node or what it keeps.
func FuzzStep(f *testing.F) {
	files, err := filepath.Glob("../../../testdata/cluster/*raft*.bin")
	if err != nil || len(files) == 0 {
		f.Fatal("no captures", err)
	}

	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}

		frame, err := wire.ParseFrame(b[4:])
		if err != nil {
			f.Fatal(err)
		}

		_, _, kind := wire.Classify(frame.Tag)
		f.Add(kind, frame.Data)
	}

	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		m, err := wire.ParseRaft(kind, data)
		if err != nil {
			return
		}

		m.Src, m.Group = "10.27.12.13", groupName
		n := New(Config{
			ID: "10.27.7.126",
			State: State{
				Term: 1,
				Log:  []Entry{{Term: 1, Type: typeConfig, Cmd: config([]string{m.Src, "10.27.7.126"}, nil)}},
			},
			Token:  func() string { return "t" },
			Jitter: func(time.Duration) time.Duration { return 0 },
		})

		now := time.Unix(1e9, 0)
		members := []Member{{ID: m.Src}, {ID: "10.27.7.126", Own: true}}
		for range 3 {
			n.Tick(now, members, true)
			n.Step(now, m)
			now = now.Add(3 * patience)
			n.Status()
		}

		st, _ := n.Dirty()
		b, err := st.Pack()
		if err != nil {
			return // not a value that can be sent
		}

		if _, err := ParseState(b); err != nil {
			t.Fatalf("kept what cannot be read: %v", err)
		}
	})
}
