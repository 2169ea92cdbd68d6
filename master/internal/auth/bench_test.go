package auth_test

import (
	"context"
	"testing"

	"saltern/master/keys"
	"saltern/test/check"
)

func benchSignIn(b *testing.B, withToken bool) {
	m := newMaster(b, options{})
	check.Must(b, m.keys.Put("m", keys.Accepted, publicText(b, "min6")))
	n := newMinion(b, "m", "min6")
	n.withToken = withToken
	load := n.load(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, ev := m.SignInEvent(context.Background(), load, 3, peer); !ev.Result {
			b.Fatal(ev)
		}
	}
}

func BenchmarkSignIn(b *testing.B)          { benchSignIn(b, false) }
func BenchmarkSignInWithToken(b *testing.B) { benchSignIn(b, true) }

func BenchmarkVerifyToken(b *testing.B) {
	m := newMaster(b, options{})
	check.Must(b, m.keys.Put("m", keys.Accepted, publicText(b, "min6")))
	tok := newMinion(b, "m", "min6").tok(b)
	b.ReportAllocs()
	for b.Loop() {
		if !m.VerifyToken("m", tok) {
			b.Fatal("refused")
		}
	}
}

func BenchmarkOpenRequest400(b *testing.B) {
	m := newMaster(b, options{})
	check.Must(b, m.keys.Put("m", keys.Accepted, publicText(b, "min6")))
	n := newMinion(b, "m", "min6")
	n.signIn(b, m)
	blob := n.session.Seal(make([]byte, 400), "")
	room := make([]byte, 0, len(blob))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := m.OpenRequest("m", append(room[:0], blob...)); err != nil {
			b.Fatal(err)
		}
	}
}
