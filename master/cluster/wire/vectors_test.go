package wire

import (
	"bytes"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"saltern/master/crypt"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/check"
)

const captures = "../../testdata/cluster"

func file(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(captures, name))
	check.Must(t, err)
	return b
}

func private(t testing.TB, id string) *rsa.PrivateKey {
	t.Helper()
	k, err := crypt.LoadPrivate(filepath.Join(captures, "keys", id+".pem"), "")
	check.Must(t, err)
	return k
}

func public(t testing.TB, id string) string { return string(file(t, "keys/"+id+".pub")) }

func key(t testing.TB, text string) crypt.Key {
	t.Helper()
	k, err := crypt.ParseKey(text)
	check.Must(t, err)
	return k
}

type vector struct {
	File, Tag, Src, Dst string
	SecretPlain         string `json:"secret_plain"`
	KeyPlain            string `json:"key_plain"`
	AESKey              string `json:"aes_key"`
	AESPlain            string `json:"aes_plain"`
	Plain               json.RawMessage
	Peers               map[string]struct {
		AESPlain string `json:"aes_plain"`
	}
}

func vectors(t testing.TB) []vector {
	var index struct{ Vectors []vector }
	check.Must(t, json.Unmarshal(file(t, "index.json"), &index))
	if len(index.Vectors) != 28 {
		t.Fatalf("%d vectors", len(index.Vectors))
	}
	return index.Vectors
}

var suite = Suite{Encryption: crypt.OAEPSHA1, Signing: crypt.PKCS1SHA1}

// Every captured message is decoded, verified and encoded again. The result has the same bytes if
// the message contains nothing random. Otherwise the frame has the same length, can be decrypted
// again, and contains the same plaintexts.
func TestVectors(t *testing.T) {
	kinds := map[Kind]int{}
	for _, v := range vectors(t) {
		t.Run(v.File, func(t *testing.T) {
			raw := file(t, v.File)
			f, err := NewReader(bytes.NewReader(raw), MaxStranger).Next()
			check.Must(t, err)
			if f.Tag != v.Tag {
				t.Fatalf("tag %q", f.Tag)
			}

			kind, peer, rest := Classify(f.Tag)
			kinds[kind]++
			var again []byte // data made by us
			exact := true
			switch kind {
			case KindAnnounce:
				again = announceAgain(t, v, peer, f.Data)
				exact = false
			case KindEvent:
				if peer != v.Src || !strings.HasSuffix(f.Tag, rest) {
					t.Fatal(peer, rest)
				}
				again = eventAgain(t, v, f.Data)
				exact = false
			case KindRaft:
				r, err := ParseRaft(rest, f.Data)
				check.Must(t, err)
				if r.Src != v.Src || r.Group != "cluster" || RaftTag(r.Kind) != f.Tag {
					t.Error(r)
				}
				again = pack(t, r.Pack())
			case KindJoinNotify:
				again = notifyAgain(t, f.Data)
				exact = false
			default:
				again, exact = joinAgain(t, kind, v, f.Data)
			}

			frame, err := AppendPacked(nil, f.Tag, again)
			check.Must(t, err)
			if exact && !bytes.Equal(frame, raw) {
				t.Errorf("another frame:\n%q\n%q", frame, raw)
			}

			if len(frame) != len(raw) {
				t.Errorf("%d bytes instead of %d", len(frame), len(raw))
			}
		})
	}

	want := map[Kind]int{
		KindAnnounce:      1,
		KindDiscover:      1,
		KindDiscoverReply: 1,
		KindJoin:          3,
		KindJoinNotify:    1,
		KindJoinReply:     1,
		KindRaft:          7,
		KindEvent:         13,
	}
	if !reflect.DeepEqual(kinds, want) {
		t.Errorf("%v", kinds)
	}
}

func pack(t testing.TB, v any) []byte {
	t.Helper()
	b, err := msgpack.Marshal(v, msgpack.Modern)
	check.Must(t, err)
	return b
}

func announceAgain(t *testing.T, v vector, from string, data []byte) []byte {
	a, err := ParseAnnounce(from, data)
	check.Must(t, err)
	got, ok, err := suite.Open(a, v.Dst, private(t, v.Dst), public(t, v.Src))
	check.Must(t, err)
	want := v.Peers[v.Dst].AESPlain
	if !ok || got.String() != want {
		t.Fatal("another key")
	}

	// The same signature, and an entry that the recipient opens.
	sig, err := AnnounceSig(private(t, v.Src), got)
	check.Must(t, err)
	out := Announce{PeerID: v.Src, Stamp: a.Stamp}
	for _, e := range a.Entries {
		if e.AES == nil {
			out.Entries = append(out.Entries, AnnounceEntry{ID: e.ID})
			continue
		}

		if !bytes.Equal(sig, e.Sig) {
			t.Error("another signature")
		}

		mine, err := suite.NewAnnounceEntry(Peer{e.ID, public(t, e.ID)}, got, sig)
		check.Must(t, err)
		out.Entries = append(out.Entries, mine)
	}

	packed := pack(t, out.Pack())
	b, err := ParseAnnounce(from, packed)
	check.Must(t, err)
	if k, ok, err := suite.Open(b, v.Dst, private(t, v.Dst), public(t, v.Src)); err != nil || !ok ||
		k.String() != got.String() {
		t.Error("our own announcement does not open", err)
	}

	if _, ok, err := suite.Open(b, "10.27.7.126", private(t, "10.27.7.126"), public(t, v.Src)); ok || err != nil {
		t.Error("an empty entry gave a key", err)
	}

	// Another sender, another recipient.
	if _, _, err := suite.Open(b, v.Dst, private(t, v.Dst), public(t, "10.27.9.42")); !errors.Is(err, ErrProof) {
		t.Error(err)
	}

	if _, _, err := suite.Open(b, v.Dst, private(t, "10.27.9.42"), public(t, v.Src)); !errors.Is(err, ErrProof) {
		t.Error(err)
	}

	return packed
}

// sameJSON compares a decoded value with one of the index.
func sameJSON(t *testing.T, got *value.Map, want json.RawMessage) {
	t.Helper()
	var w any
	check.Must(t, json.Unmarshal(want, &w))
	b, err := json.Marshal(plain(got))
	check.Must(t, err)
	var g any
	check.Must(t, json.Unmarshal(b, &g))
	if !reflect.DeepEqual(g, w) {
		t.Errorf("got  %v\nwant %v", g, w)
	}
}

func plain(v any) any {
	switch v := v.(type) {
	case *value.Map:
		m := map[string]any{}
		for k, x := range v.All() {
			m[k.(string)] = plain(x)
		}
		return m
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = plain(x)
		}
		return out
	}

	return v
}

func eventAgain(t *testing.T, v vector, data []byte) []byte {
	session := key(t, v.AESKey)
	other := key(t, string(file(t, "keys/cluster_aes.txt")))
	payload, err := OpenEvent(data, other, session)
	check.Must(t, err)
	sameJSON(t, value.NewMap("event_payload", payload), v.Plain)

	if _, err := OpenEvent(data, other); !errors.Is(err, ErrProof) {
		t.Errorf("with another key: %v", err)
	}

	sealed, err := SealEvent(payload, session)
	check.Must(t, err)

	// The plaintexts are equal to the last byte.
	blob, err := decodeBlob(data)
	check.Must(t, err)
	a, err := session.Open(blob)
	check.Must(t, err)
	b, err := session.Open(sealed)
	check.Must(t, err)

	if !bytes.Equal(a, b) {
		t.Errorf("another plaintext:\n%q\n%q", a, b)
	}

	packed, err := Blob(sealed)
	check.Must(t, err)
	return packed
}

func notifyAgain(t *testing.T, data []byte) []byte {
	cluster := key(t, string(file(t, "keys/cluster_aes.txt")))
	n, err := OpenJoinNotify(data, cluster)
	check.Must(t, err)
	if n.PeerID != "10.27.12.13" || n.JoinPeerID != "10.27.7.126" ||
		crypt.NormalizePEM(n.Pub) != crypt.NormalizePEM(public(t, "10.27.7.126")) {
		t.Error(n)
	}

	sealed, err := n.Seal(cluster)
	check.Must(t, err)
	packed, err := Blob(sealed)
	check.Must(t, err)

	if b, err := OpenJoinNotify(packed, cluster); err != nil || !reflect.DeepEqual(b, n) {
		t.Error("our own does not open", err)
	}

	return packed
}

func joinAgain(t *testing.T, kind Kind, v vector, data []byte) (again []byte, exact bool) {
	t.Helper()
	me, them := private(t, v.Src), private(t, v.Dst)
	var m *value.Map
	switch kind {
	case KindDiscover:
		d, err := suite.OpenDiscover(data)
		check.Must(t, err)
		if d.PeerID != v.Src {
			t.Error(d.PeerID)
		}

		m, err = d.Seal(suite, me)
		check.Must(t, err)
		return pack(t, m), true
	case KindDiscoverReply:
		d, err := suite.OpenDiscoverReply(data)
		check.Must(t, err)
		if crypt.NormalizePEM(d.ClusterPub) != crypt.NormalizePEM(public(t, "cluster")) {
			t.Error("another cluster")
		}

		m, err = d.Seal(suite, private(t, "cluster"))
		check.Must(t, err)
		return pack(t, m), true
	case KindJoin:
		j, err := suite.OpenJoin(data, them)
		check.Must(t, err)
		if j.Secret != v.SecretPlain || j.SessionKey.String() != v.KeyPlain || j.PeerID != v.Src {
			t.Error("another secret or key")
		}

		m, err = j.Seal(suite, me, public(t, v.Dst))
		check.Must(t, err)
		if k, err := suite.OpenJoin(pack(t, m), them); err != nil || !reflect.DeepEqual(k, j) {
			t.Error("our own does not open", err)
		}
	case KindJoinReply:
		token := "l8HgGD8k6o6amIhnDPyIf5ZXTF4b8Y8t"
		j, err := suite.OpenJoinReply(data, them, public(t, v.Src), token)
		check.Must(t, err)
		if j.ClusterKey.String() != string(file(t, "keys/cluster_aes.txt")) || j.SessionKey.String() != v.AESPlain ||
			!bytes.Equal(bytes.TrimSpace(j.ClusterPEM), bytes.TrimSpace(file(t, "keys/cluster.pem"))) {
			t.Error("another key")
		}

		if _, err := suite.OpenJoinReply(data, them, public(t, v.Src), strings.Repeat("x", TokenLen)); !errors.Is(err, ErrProof) {
			t.Errorf("another token: %v", err)
		}

		if _, err := suite.OpenJoinReply(data, them, public(t, v.Dst), token); !errors.Is(err, ErrProof) {
			t.Errorf("another sender: %v", err)
		}

		m, err = j.Seal(suite, me, public(t, v.Dst))
		check.Must(t, err)
		if k, err := suite.OpenJoinReply(pack(t, m), them, public(t, v.Src), token); err != nil ||
			!reflect.DeepEqual(k, j) {
			t.Error("our own does not open", err)
		}
	default:
		t.Fatalf("kind %d", kind)
	}

	return pack(t, m), false
}

// TestAttack11Tampering changes single bytes of the messages of joining.
func TestAttack11Tampering(t *testing.T) {
	for _, v := range vectors(t) {
		f, err := ParseFrame(file(t, v.File)[prefixLen:])
		check.Must(t, err)
		kind, _, _ := Classify(f.Tag)
		var open func([]byte) error
		switch kind {
		case KindDiscover:
			open = func(b []byte) error { _, err := suite.OpenDiscover(b); return err }
		case KindDiscoverReply:
			open = func(b []byte) error { _, err := suite.OpenDiscoverReply(b); return err }
		case KindJoinReply:
			dst, src := private(t, v.Dst), public(t, v.Src)
			open = func(b []byte) error {
				_, err := suite.OpenJoinReply(b, dst, src, "l8HgGD8k6o6amIhnDPyIf5ZXTF4b8Y8t")
				return err
			}
		case KindJoinNotify:
			k := key(t, string(file(t, "keys/cluster_aes.txt")))
			open = func(b []byte) error { _, err := OpenJoinNotify(b, k); return err }
		default:
			continue
		}

		check.Must(t, open(f.Data))
		end := len(f.Data)
		if i := bytes.Index(f.Data, []byte("\xa6_stamp")); i > 0 {
			end = i // the only part that nobody signs
		}

		for i := 0; i < end; i += 7 {
			bad := bytes.Clone(f.Data)
			bad[i] ^= 1
			if err := open(bad); err == nil {
				t.Errorf("%s: byte %d changed and taken", v.File, i)
			}
		}
	}
}

func TestClassify(t *testing.T) {
	for tag, want := range map[string]struct {
		k          Kind
		peer, rest string
	}{
		"cluster/peer/discover":             {KindDiscover, "", ""},
		"cluster/peer/discover-reply":       {KindDiscoverReply, "", ""},
		"cluster/peer/join":                 {KindJoin, "", ""},
		"cluster/peer/joiner.example.com":   {KindAnnounce, "joiner.example.com", ""}, // Salt takes it for a join
		"cluster/peer/discovery":            {KindAnnounce, "discovery", ""},
		"cluster/peer/10.0.0.1":             {KindAnnounce, "10.0.0.1", ""},
		"cluster/peer/fd00::1":              {KindAnnounce, "fd00::1", ""},
		"cluster/peer/":                     {Unknown, "", ""},
		"cluster/peer/../x":                 {Unknown, "", ""},
		"cluster/peer":                      {Unknown, "", ""},
		"cluster/event/a/b/c":               {KindEvent, "a", "b/c"},
		"cluster/event/a":                   {Unknown, "", ""},
		"cluster/event/a/":                  {Unknown, "", ""},
		"cluster/event//x":                  {Unknown, "", ""},
		"cluster/raft/append-entries":       {KindRaft, "", "append-entries"},
		"cluster/saltern/state":             {KindOwn, "", "state"},
		"cluster/peer/state-sync-chunk":     {KindState, "", ""},
		"cluster/runner/shed_unowned_all":   {Unknown, "", ""},
		"salt/job/20261121073619941881/new": {Unknown, "", ""},
	} {
		if k, peer, rest := Classify(tag); k != want.k || peer != want.peer || rest != want.rest {
			t.Errorf("%s: %d %q %q", tag, k, peer, rest)
		}
	}
}

func TestAttack13PeerNames(t *testing.T) {
	for _, id := range []string{"10.0.0.1", "fd00::1", "master-1.example.com", "m_1", "x", "::1"} {
		if err := ValidPeer(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	for _, id := range []string{"", ".", "..", ".hidden", "-x", "a/b", `a\b`, "a\x00", "a\nb", "a..b", "a b",
		"ä", "a%2f", "*", "a[", strings.Repeat("a", 254), "join", "discover-reply", "a;b", "a@b"} {
		if ValidPeer(id) == nil {
			t.Errorf("%q is taken", id)
		}
	}
}

func TestKeyEvent(t *testing.T) {
	for _, c := range []struct {
		tag, act string
		result   bool
		want     KeyState
	}{
		{"salt/key", "accept", true, KeyAccepted}, {"salt/key", "accepted", true, KeyAccepted}, {"salt/auth", "accept", true, KeyAccepted},
		{"salt/auth", "pend", true, KeyPending}, {"salt/key", "delete", true, KeyDeleted}, {"salt/key", "deleted", true, KeyDeleted},
		{"salt/key", "rejected", true, KeyRejected}, {"salt/auth", "reject", false, KeyRejected}, {"salt/auth", "denied", false, KeyDenied},
		{"salt/auth", "error", false, KeyNone}, {"salt/key", "accept", false, KeyNone}, {"salt/other", "accept", true, KeyNone},
	} {
		id, st := KeyEvent(c.tag, value.NewMap("result", c.result, "act", c.act, "id", "m"))
		if st != c.want || (id == "m") != (c.want != KeyNone) {
			t.Errorf("%+v: %q %d", c, id, st)
		}
	}
}

// TestAttack19Frames: hostile lengths cost no memory.
func TestAttack19Frames(t *testing.T) {
	for name, b := range map[string][]byte{
		"huge":        {0xff, 0xff, 0xff, 0xff},
		"tls":         {0x16, 0x03, 0x01, 0x02, 0x00},
		"over":        {0x00, 0x01, 0x00, 0x01},
		"short":       {0, 0, 0, 10, 0x80},
		"empty":       {0, 0, 0, 0},
		"not a map":   {0, 0, 0, 1, 0xc0},
		"no body":     {0, 0, 0, 1, 0x80},
		"huge array":  {0, 0, 0, 5, 0xdd, 0xff, 0xff, 0xff, 0xff},
		"no tag":      append([]byte{0, 0, 0, 8, 0x81, 0xa4}, "body\xa0"...),
		"no tag end":  append([]byte{0, 0, 0, 9, 0x81, 0xa4}, "body\xa1x"...),
		"empty body":  append([]byte{0, 0, 0, 9, 0x81, 0xa4}, "body\xc4\x00"...),
		"prefix only": {0, 0},
	} {
		n := testing.AllocsPerRun(1, func() {
			if _, err := NewReader(bytes.NewReader(b), MaxStranger).Next(); err == nil {
				t.Errorf("%s is taken", name)
			}
		})
		if n > 40 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func FuzzMessages(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(file(f, v.File))
	}

	dst, src := private(f, "10.27.7.126"), public(f, "10.27.12.13")
	k := key(f, string(file(f, "keys/cluster_aes.txt")))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b), MaxStranger)
		for range 4 {
			fr, err := r.Next()
			if err != nil {
				return
			}

			kind, peer, rest := Classify(fr.Tag)
			switch kind {
			case KindDiscover:
				_, _ = suite.OpenDiscover(fr.Data)
			case KindDiscoverReply:
				_, _ = suite.OpenDiscoverReply(fr.Data)
			case KindJoin:
				_, _ = suite.OpenJoin(fr.Data, dst)
			case KindJoinReply:
				_, _ = suite.OpenJoinReply(fr.Data, dst, src, "l8HgGD8k6o6amIhnDPyIf5ZXTF4b8Y8t")
			case KindJoinNotify:
				_, _ = OpenJoinNotify(fr.Data, k)
			case KindAnnounce:
				if ValidPeer(peer) != nil {
					t.Fatalf("%q", peer)
				}
				if a, err := ParseAnnounce(peer, fr.Data); err == nil {
					_, _, _ = suite.Open(a, "10.27.7.126", dst, src)
				}
			case KindEvent:
				_, _ = OpenEvent(fr.Data, k)
			case KindRaft:
				_, _ = ParseRaft(rest, fr.Data)
			}
		}
	})
}
