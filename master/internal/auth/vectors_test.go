package auth_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"saltern/master/crypt"
	"saltern/master/internal/auth"
	"saltern/master/keys"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/check"
)

// Every captured sign-in is asked again; the answer must have the same fields
// in the same order and of the same sizes, and the parts without randomness
// must be the same bytes.
func TestCapturedSignIns(t *testing.T) {
	n := 0
	for _, v := range vectors(t) {
		if v.Decode != "auth" {
			continue
		}

		n++
		t.Run(v.File, func(t *testing.T) {
			request, reply := capture(t, v.Request), capture(t, v.File)
			load := request.Map("load")
			wantLoad, _ := reply.Bytes("load")
			want := decode(t, wantLoad)
			o := options{auth: auth.Config{}}
			if v.ExpectAES != "" {
				// With the key of the captures in cluster form the digest is
				// comparable.
				var err error
				o.secrets.ClusterKey, err = crypt.ParseKey(v.ExpectAES)
				check.Must(t, err)
			}

			if want.Str("pub_sig") != "" {
				signer, err := auth.NewIdentity(private(t, "master_sign"))
				check.Must(t, err)
				o.secrets.Signer = &signer
			}

			if strings.HasPrefix(v.File, "auth_full") {
				o.auth.MaxMinions = 1
				o.auth.Presence = connected{2, false}
			}

			m := newMaster(t, o)
			prepare(t, m, v, load)
			payload, ev := m.SignInEvent(context.Background(), load, 3, peer)
			got := payload.(*value.Map)
			if !slices.Equal(got.Keys(), reply.Keys()) {
				t.Fatalf("fields %v, want %v", got.Keys(), reply.Keys())
			}

			gotLoad, _ := got.Bytes("load")
			sig, _ := got.Bytes("sig")
			key := private(t, "masterA")
			check.Must(t, crypt.Verify(&key.PublicKey, load.Str("sig_algo"), gotLoad, sig))
			g := decode(t, gotLoad)
			if !slices.Equal(g.Keys(), want.Keys()) {
				t.Fatalf("fields %v, want %v", g.Keys(), want.Keys())
			}

			packed, err := msgpack.Marshal(got, msgpack.Raw)
			check.Must(t, err)
			captured, err := msgpack.Marshal(reply, msgpack.Raw)
			check.Must(t, err)

			if len(packed) != len(captured) {
				t.Errorf("%d bytes, captured %d", len(packed), len(captured))
			}

			for k, w := range want.All() {
				a, b := fmt.Sprint(g.Get(k.(string))), fmt.Sprint(w, true)
				switch k {
				case "aes", "session", "token": // random
				default:
					if a != b {
						t.Errorf("%s: %.80s, captured %.80s", k, a, b)
					}
				}
			}

			if want.Str("enc") == "" && v.Keyset == "A" {
				wantSig, _ := reply.Bytes("sig")
				if !bytes.Equal(sig, wantSig) || !bytes.Equal(gotLoad, wantLoad) {
					t.Error("the answer differs from the captured one")
				}
			}

			checkEvent(t, m, ev, g, load)
		})
	}

	if n < 14 {
		t.Errorf("only %d sign-ins", n)
	}
}

// prepare puts the minion's key where it was when the capture was made.
func prepare(t *testing.T, m *master, v vector, load *value.Map) {
	t.Helper()
	id, pub := load.Str("id"), load.Str("pub")
	switch name := strings.TrimPrefix(v.File, "auth_"); {
	case strings.HasPrefix(name, "rejected"):
		check.Must(t, m.keys.Put(id, keys.Rejected, pub))
	case strings.HasPrefix(name, "denied"):
		check.Must(t, m.keys.Put(id, keys.Accepted, publicText(t, "min6")))
	case strings.HasPrefix(name, "pending"), strings.HasPrefix(name, "full"):
	default:
		check.Must(t, m.keys.Put(id, keys.Accepted, pub))
	}
}

func checkEvent(t *testing.T, m *master, ev auth.Event, reply, load *value.Map) {
	t.Helper()
	data := m.lastEvent(t)
	if data.Str("act") != ev.Act || data.Bool("result") != ev.Result || data.Str("id") != load.Str("id") ||
		data.Str("pub") != load.Str("pub") {
		t.Errorf("event %v for %+v", data, ev)
	}
	accepted := reply.Str("enc") == "pub"
	if (ev.Act == auth.ActAccept) != accepted {
		t.Errorf("act %q", ev.Act)
	}
}

// The fields of the event come in the order of the captured one.
func TestCapturedEvent(t *testing.T) {
	b, err := filepath.Glob(filepath.Join(wire, "event_salt_auth.bin"))
	if err != nil || len(b) != 1 {
		t.Fatal("no capture", err)
	}

	frame := capture(t, "event_salt_auth.bin")
	body, _ := frame.Bytes("body")
	tag, packed, ok := bytes.Cut(body, []byte("\n\n"))
	if !ok {
		t.Fatal("no tag")
	}

	want := decode(t, packed)
	m := newMaster(t, options{})
	n := newMinion(t, "min6", "min6")
	n.signIn(t, m)
	got := m.lastEvent(t)

	if m.tags[0] != strings.TrimRight(string(tag), "|") {
		t.Errorf("tag %q, want %q", m.tags[0], tag)
	}

	want.Delete("_stamp") // the bus adds it
	a, err := msgpack.Marshal(got, msgpack.Modern)
	check.Must(t, err)
	w, err := msgpack.Marshal(want, msgpack.Modern)
	check.Must(t, err)

	if !bytes.Equal(a, w) {
		t.Errorf("event %q, captured %q", a, w)
	}
}
