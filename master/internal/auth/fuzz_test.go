package auth_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/master/internal/auth"
	"saltern/master/keys"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/check"
)

// FuzzSignIn gives any map to a sign-in: it always answers, and no file
// appears but for a valid id.
func FuzzSignIn(f *testing.F) {
	for _, v := range vectors(f) {
		if strings.HasPrefix(v.File, "auth_") && v.Decode == "clear" {
			load, err := msgpack.Marshal(capture(f, v.File).Map("load"), msgpack.Raw)
			check.Must(f, err)
			f.Add(load, int64(3))
		}
	}

	m := newMaster(f, options{auth: auth.Config{OpenMode: false}, store: keys.Config{MaxPending: 50}})
	f.Fuzz(func(t *testing.T, packed []byte, version int64) {
		v, err := msgpack.Decode(packed, msgpack.DefaultLimits)
		if err != nil {
			return
		}

		load, ok := v.(*value.Map)
		if !ok {
			return
		}

		payload := m.SignIn(context.Background(), load, version, peer)
		if payload == nil {
			t.Fatal("no answer")
		}

		if _, err := msgpack.Marshal(payload, msgpack.Raw); err != nil {
			t.Fatal(err)
		}

		list, err := os.ReadDir(filepath.Join(m.dir, "pki"))
		if err != nil || len(list) != 5 {
			t.Fatalf("%v, %v", list, err)
		}
		if m.keys.Count(keys.Accepted) != 0 {
			t.Fatal("accepted")
		}
	})
}

// FuzzOpenRequest gives any id and blob to what comes before authentication.
func FuzzOpenRequest(f *testing.F) {
	m := newMaster(f, options{})
	check.Must(f, m.keys.Put("m", keys.Accepted, publicText(f, "min6")))
	n := newMinion(f, "m", "min6")
	n.signIn(f, m)
	f.Add("m", []byte("x"), []byte("y"))
	f.Add("../m", n.session.Seal([]byte{0xc0}, "")[:40], n.tok(f)[:100])
	f.Fuzz(func(t *testing.T, id string, blob, tok []byte) {
		if body, _, err := m.OpenRequest(id, blob); err == nil {
			t.Fatalf("opened %q", body)
		}
		if m.VerifyToken(id, tok) {
			t.Fatal("token taken")
		}
	})
}
