package explain

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/internal/request"
	"saltern/master/keys"
	"saltern/master/value"
)

var now = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// TestCausesWithoutANode: causes that need other nodes. The others are planted in a whole master, see
// TestCausesAreNamed of package minions.
func TestCausesWithoutANode(t *testing.T) {
	accepted := facts{id: "web1", now: now, hasKey: true, key: keys.Entry{State: keys.Accepted}}
	for _, c := range []struct {
		code string
		set  func(f *facts)
	}{
		{"node not asked", func(f *facts) { f.places.Unasked = map[string]string{"n2": "no answer"} }},
		{"other nodes unknown", func(f *facts) { f.unplaced = errors.New("no supervisor") }},
		{"deaf", func(f *facts) { f.places.Connected = true; f.places.Node = "n2"; f.answer.asked = true }},
		{"answers", func(f *facts) { f.places.Connected = true; f.places.Node = "n2"; f.answer.answers = 1 }},
		{"not asked", func(f *facts) { f.places.Connected = true; f.answer.failed = errors.New("disk full") }},
		{"not asked", func(f *facts) { f.asked = now; f.listened = now.Add(-10 * time.Second) }},
		{"deaf", func(f *facts) { f.listened = now.Add(-10 * time.Second); f.answer.asked = true }},
		{"does not listen", func(f *facts) { f.asked = now; f.listened = now.Add(-time.Hour) }},
		{"syndic", func(f *facts) { f.syndic = true; f.places.Connected = true; f.answer.asked = true }},
		{"never seen", func(f *facts) { f.syndic = true }},
		{answers, func(f *facts) { f.syndic = true; f.places.Connected = true; f.answer.answers = 1 }},
		{"no such minion", func(f *facts) { f.hasKey = false; f.orders = true; f.answer.asked = true }},
		{"key not accepted", func(f *facts) { f.orders = true; f.key.State = keys.Pending; f.answer.answers = 1 }},
		{"resource", func(f *facts) { f.hasKey = false; f.manager = "proxy1" }},
	} {
		t.Run(c.code, func(t *testing.T) {
			f := accepted
			c.set(&f)
			got := causesOf(&f)
			if got[0].Code != c.code || got[0].Text == "" || got[0].Next == "" && c.code != answers {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestMinionBelowASyndicAnswers: a minion without a key here that answers is one of a lower master.
func TestMinionBelowASyndicAnswers(t *testing.T) {
	f := facts{id: "low1", now: now, orders: true}
	f.answer = answer{asked: true, answers: 1}
	got := causesOf(&f)
	if len(got) != 2 || got[0].Code != answers || got[1].Code != "below a syndic" {
		t.Errorf("%+v", got)
	}
}

// TestWhoAnswersIsConnected: a minion that answers through another master is connected to it.
func TestWhoAnswersIsConnected(t *testing.T) {
	f := facts{id: "web1", now: now, hasKey: true, unplaced: errors.New("no supervisor")}
	f.answer = answer{asked: true, answers: 1, peer: "n2"}
	if got := f.connection(); !got.Connected || got.Node != "n2" {
		t.Errorf("%+v", got)
	}
}

// TestSilentExplanationIsNoAnswer: who was not asked has not answered.
func TestSilentExplanationIsNoAnswer(t *testing.T) {
	f := facts{id: "web1", now: now, hasKey: true, key: keys.Entry{State: keys.Accepted}, here: true}
	if got := causesOf(&f); got[0].Code != "not asked" || got[0].Next == "" {
		t.Errorf("%+v", got)
	}
}

// TestOldFactsOfThisNode: what this node saw weeks ago does not count after another node has heard from the
// minion.
func TestOldFactsOfThisNode(t *testing.T) {
	long := now.Add(-21 * 24 * time.Hour)
	for name, set := range map[string]func(f *facts){
		"sign-in": func(f *facts) { f.hasSignIn = true; f.signIn = SignIn{At: long} },
		"refusal": func(f *facts) { f.refusal = &request.Refusal{At: long, Why: "token of web1", Count: 1} },
		"other key": func(f *facts) {
			f.hasDenied = true
			f.hasSignIn = true
			f.signIn = SignIn{At: long}
		},
		"refused sign-in": func(f *facts) { f.hasSignIn = true; f.signIn = SignIn{At: long, Refusal: "full"} },
	} {
		t.Run(name, func(t *testing.T) {
			f := facts{id: "web1", now: now, hasKey: true, key: keys.Entry{State: keys.Accepted}}
			f.places.Seen = now.Add(-24 * time.Hour)
			set(&f)
			if got := causesOf(&f); got[0].Code != "not connected" {
				t.Errorf("%+v", got)
			}
		})
	}

	t.Run("sign-in that the nodes report, too", func(t *testing.T) {
		f := facts{id: "web1", now: now, hasKey: true, key: keys.Entry{State: keys.Accepted}}
		f.hasSignIn = true
		f.signIn = SignIn{At: now.Add(-10 * time.Minute)}
		f.places.Seen = f.signIn.At.Add(time.Millisecond)
		if got := causesOf(&f); got[0].Code != "goes no further" {
			t.Errorf("%+v", got)
		}
	})

	t.Run("connected to another node", func(t *testing.T) {
		f := facts{id: "web1", now: now, hasKey: true, key: keys.Entry{State: keys.Accepted}}
		f.refusal = &request.Refusal{At: long, Why: "token of web1", Count: 1}
		f.places = control.MinionPlaces{Connected: true, Node: "n2", Seen: now.Add(-time.Minute)}
		f.answer.asked = true
		if got := causesOf(&f); got[0].Code != "deaf" {
			t.Errorf("%+v", got)
		}
	})
}

// TestEveryCauseHasAText: whatever is known, there is a cause, with a next step unless it answers.
func TestEveryCauseHasAText(t *testing.T) {
	bits := []func(f *facts){
		func(f *facts) { f.hasKey = true },
		func(f *facts) { f.key.State = keys.Pending },
		func(f *facts) { f.hasDenied = true },
		func(f *facts) { f.here = true },
		func(f *facts) { f.asked = now.Add(24 * time.Hour) }, // the clock was ahead
		func(f *facts) { f.hasSignIn = true; f.signIn = SignIn{At: now.Add(-time.Minute)} },
		func(f *facts) { f.signIn.Refusal = "bad load" },
		func(f *facts) { f.answer.asked = true },
		func(f *facts) { f.answer.answers = 2 },
		func(f *facts) { f.answer.text = "x" },
		func(f *facts) { f.unanswered = make([]control.ExplainedJob, 3) },
	}
	for mask := range 1 << len(bits) {
		f := facts{id: "web1", now: now}
		for i, set := range bits {
			if mask>>i&1 == 1 {
				set(&f)
			}
		}
		got := causesOf(&f)
		if len(got) == 0 {
			t.Fatalf("%b: no cause", mask)
		}
		for _, c := range got {
			if c.Code == "" || c.Text == "" || c.Next == "" && c.Code != answers {
				t.Errorf("%b: %+v", mask, c)
			}
		}
	}
}

func TestIDsThatLookAlike(t *testing.T) {
	for other, want := range map[string]bool{
		"WEB1.example.com": true,
		"web1":             true,
		"wbe1.example.com": true,
		"web2.example.com": true,
		"mail.example.com": false,
		"":                 false,
	} {
		if got := looksLike("web1.example.com", other); got != want {
			t.Errorf("%q: %v", other, got)
		}
	}
	if looksLike("a1", "b2") {
		t.Error("short ids without a common letter")
	}
}

// auth is a request.Auth that answers each sign-in alike.
type auth struct {
	request.Auth
	answer any
}

func (a auth) SignIn(context.Context, *value.Map, int64, netip.AddrPort) any { return a.answer }

// newKey returns the text of a new public key.
func newKey(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// TestSignInsOfStrangersAreBounded: ids that a stranger chooses displace no minion with a key.
func TestSignInsOfStrangersAreBounded(t *testing.T) {
	store, err := keys.Open(t.TempDir(), keys.Config{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Put("web1", keys.Accepted, newKey(t)); err != nil {
		t.Fatal(err)
	}

	s := NewSignIns(auth{answer: "master is busy, sign in again later\x1b[2J"}, store, func() time.Time { return now })
	from := netip.MustParseAddrPort("192.0.2.1:1000")
	s.SignIn(t.Context(), value.NewMap("id", "web1"), 3, from)
	for i := range 10 * maxStrangers {
		s.SignIn(t.Context(), value.NewMap("id", fmt.Sprintf("stranger%d", i)), 3, from)
		s.SignIn(t.Context(), value.NewMap("id", strings.Repeat("x", i)), 3, from)
	}

	last, ok := s.Last("web1")
	if !ok || last.From != from.Addr() || last.Refusal != `master is busy, sign in again later?[2J` {
		t.Errorf("%+v %v", last, ok)
	}
	if n := len(s.strangers.last); n != maxStrangers || len(s.strangers.order) != maxStrangers {
		t.Errorf("%d strangers, %d in order", n, len(s.strangers.order))
	}
	if _, ok := s.Last(fmt.Sprintf("stranger%d", 10*maxStrangers-1)); !ok {
		t.Error("the latest stranger is not known")
	}
}
