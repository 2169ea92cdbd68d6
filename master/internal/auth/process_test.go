package auth_test

import (
	"context"
	"errors"
	"testing"

	"saltern/master/crypt"
	"saltern/master/internal/auth"
	"saltern/master/keys"
	"saltern/test/check"
)

// TestProcessOfASignIn: a minion that signs in again is known to be the same process by its
// token, one that was started anew is another one (S6); and a minion that may not come in
// yet gets no keys.
func TestProcessOfASignIn(t *testing.T) {
	var heard []auth.Process
	var refuse error
	m := newMaster(t, options{auth: auth.Config{Admit: func(_ context.Context, id string, p auth.Process) error {
		if id != "m" {
			t.Errorf("admitted %q", id)
		}
		heard = append(heard, p)
		return refuse
	}}})

	check.Must(t, m.keys.Put("m", keys.Accepted, publicText(t, "min6")))
	n := newMinion(t, "m", "min6")
	signIn := func(token string) any {
		load := n.load(t)
		if token != "" {
			ct, err := crypt.Encrypt(n.masterKey, n.enc, []byte(token))
			check.Must(t, err)
			load.Set("token", ct)
		}
		return m.SignIn(context.Background(), load, 3, peer)
	}

	token := func() string {
		k, err := crypt.NewKey(nil)
		check.Must(t, err)
		return k.String()
	}

	one, other := token(), token()
	for _, tok := range []string{one, one, other, "", "secret of somebody else", one} {
		n.check(t, signIn(tok))
	}

	if len(heard) != 6 || heard[0] == 0 || heard[1] != heard[0] || heard[2] == heard[0] || heard[2] == 0 ||
		heard[3] != 0 || heard[4] != 0 || heard[5] != heard[0] {
		t.Errorf("processes %v", heard)
	}

	refuse = errors.New("the others do not know of it")
	if text, ok := signIn(one).(string); !ok || text != "master is busy, sign in again later" {
		t.Errorf("put off: %v", text)
	}

	stranger := newMinion(t, "stranger", "min7")
	stranger.check(t, m.SignIn(context.Background(), stranger.load(t), 3, peer)) // pending: nothing is asked
}
