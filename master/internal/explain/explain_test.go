package explain

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/master/conf"
	"saltern/master/keys"
	"saltern/master/value"
	"saltern/test/check"
)

// TestWaitForAPlaceLeavesTimeToExplain: who gets a place has time for all parts of the explanation.
func TestWaitForAPlaceLeavesTimeToExplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		for range maxAtOnce {
			s.busy <- struct{}{}
		}

		began := time.Now()
		_, err := s.Explain(t.Context(), control.ExplainQuestion{Minion: "web1"})
		if waited := time.Since(began); !errors.Is(err, errBusy) || waited != takes-partFor-askFor {
			t.Errorf("%v after %v", err, waited)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		_, err = s.Explain(ctx, control.ExplainQuestion{Minion: "web1"})
		if waited := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || waited != time.Second {
			t.Errorf("%v after %v", err, waited)
		}
	})
}

func TestAskIsTrueOrFalse(t *testing.T) {
	for _, tt := range []struct {
		ask    any
		silent bool
		fails  bool
	}{
		{ask: true},
		{ask: "True"},
		{ask: "true"},
		{ask: nil},
		{ask: false, silent: true},
		{ask: "False", silent: true},
		{ask: "false", silent: true},
		{ask: "no", fails: true},
		{ask: "off", fails: true},
		{ask: "", fails: true},
		{ask: int64(0), fails: true},
		{ask: []any{}, fails: true},
	} {
		t.Run(value.Repr(tt.ask), func(t *testing.T) {
			q, err := questionOf([]any{"web1"}, value.NewMap("ask", tt.ask))
			if errors.Is(err, ErrArgument) != tt.fails || err == nil && q.Silent != tt.silent {
				t.Errorf("silent %v, error %v", q.Silent, err)
			}
		})
	}
}

// TestLaterSignIn: after a key is deleted, sign-ins under its id are those of a stranger.
func TestLaterSignIn(t *testing.T) {
	store, err := keys.Open(t.TempDir(), keys.Config{Create: true})
	check.Must(t, err)
	check.Must(t, store.Put("web1", keys.Accepted, newKey(t)))
	clock := now
	s := NewSignIns(auth{answer: "full"}, store, func() time.Time { return clock })

	for i, from := range []string{"192.0.2.1:1000", "192.0.2.2:1000"} {
		clock = clock.Add(time.Hour)
		s.SignIn(t.Context(), value.NewMap("id", "web1"), 3, netip.MustParseAddrPort(from))
		last, ok := s.Last("web1")
		if !ok || !last.At.Equal(clock) || last.From != netip.MustParseAddrPort(from).Addr() {
			t.Errorf("sign-in %d: %+v %v", i, last, ok)
		}
		check.Must(t, store.Delete("web1"))
	}
}

// nodes has the audit records of all nodes.
type nodes struct {
	Nodes
	records []audit.Record
	err     error
}

func (n nodes) Records(context.Context, audit.Query) (audit.List, error) {
	return audit.List{Page: audit.Page{Records: n.records}}, n.err
}

// TestWhoDecidedAboutAKey: it is the last one whose decision led to the state of the key, on any node.
func TestWhoDecidedAboutAKey(t *testing.T) {
	at := func(hours int) time.Time { return now.Add(time.Duration(hours) * time.Hour) }
	decision := func(hours int, user, action string) audit.Record {
		return audit.Record{Time: at(hours), Actor: audit.Actor{User: user, Proof: audit.Key}, Action: action, Object: "web1", Result: audit.OK}
	}
	byWheel := func(r audit.Record, object string, ids ...string) audit.Record {
		r.Function = r.Action
		r.Object = object
		r.Detail = audit.Names(ids)
		return r
	}
	many := make([]string, 30)
	for i := range many {
		many[i] = "web" + string(rune('A'+i))
	}
	refused := decision(3, "autosign", "key.autosign")
	refused.Result = audit.Refused
	failed := decision(3, "mallory", "key.accept")
	failed.Result = audit.Failed

	for _, tt := range []struct {
		name    string
		state   keys.State
		records []audit.Record // of all nodes
		fails   bool           // they cannot be read
		own     []audit.Record // of this node
		want    string
	}{
		{
			name:    "another node has the later one",
			state:   keys.Accepted,
			own:     []audit.Record{decision(1, "alice", "key.accept")},
			records: []audit.Record{decision(1, "alice", "key.accept"), decision(2, "bob", "key.accept")},
			want:    "bob",
		},
		{
			name:  "this node alone",
			state: keys.Accepted,
			own:   []audit.Record{decision(1, "alice", "key.accept")},
			fails: true,
			want:  "alice",
		},
		{
			name:    "other actions",
			state:   keys.Accepted,
			records: []audit.Record{decision(1, "alice", "key.accept"), decision(2, "bob", "key.reject"), decision(2, "bob", "key.delete"), failed},
			want:    "alice",
		},
		{
			name:    "rejected",
			state:   keys.Rejected,
			records: []audit.Record{decision(1, "alice", "key.accept"), decision(2, "bob", "key.reject")},
			want:    "bob",
		},
		{
			name:    "rejected by a rule",
			state:   keys.Rejected,
			records: []audit.Record{decision(1, "alice", "key.reject"), refused},
			want:    "autosign",
		},
		{
			name:    "nobody accepted it",
			state:   keys.Pending,
			records: []audit.Record{decision(1, "alice", "key.accept"), decision(2, "bob", "key.delete")},
			want:    "",
		},
		{
			name:    "by a glob",
			state:   keys.Accepted,
			records: []audit.Record{decision(1, "alice", "key.accept"), byWheel(decision(2, "bob", "key.accept"), "web*", "web0", "web1")},
			want:    "bob",
		},
		{
			name:    "a glob that may have selected it",
			state:   keys.Accepted,
			records: []audit.Record{decision(1, "alice", "key.accept"), byWheel(decision(2, "bob", "key.accept"), "web*", many...)},
			want:    "",
		},
		{
			name:    "a glob that has not selected it",
			state:   keys.Accepted,
			records: []audit.Record{decision(1, "alice", "key.accept"), byWheel(decision(2, "bob", "key.accept"), "db*", many...)},
			want:    "alice",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			options := &conf.Master{}
			options.CacheDir = t.TempDir()
			log := audit.Open(options.Audit("salt-master", nil))
			for _, r := range tt.own {
				log.Write(t.Context(), r)
			}
			log.Close()

			all := nodes{records: tt.records}
			if tt.fails {
				all.err = errors.New("no supervisor")
			}
			s := New(Config{Options: options, Nodes: all})
			out := control.ExplainedKey{State: tt.state.String()}
			s.addDecision(t.Context(), "web1", &out)
			if out.By != tt.want {
				t.Errorf("by %q, want %q", out.By, tt.want)
			}
		})
	}
}
