package crypt_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"saltern/master/crypt"
)

// seq is a source of bytes 0, 1, 2, …
type seq struct{ n byte }

func (s *seq) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = s.n
		s.n++
	}
	return len(p), nil
}

func testKey(t testing.TB) crypt.Key {
	t.Helper()
	k, err := crypt.NewKey(&seq{})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeyText(t *testing.T) {
	k := testKey(t)
	if len(k.String()) != crypt.KeyLen {
		t.Fatalf("text of %d characters", len(k.String()))
	}

	p, err := crypt.ParseKey(" " + k.String() + "\n")
	if err != nil || p.String() != k.String() {
		t.Fatalf("parsed to another key, %v", err)
	}

	a, errA := crypt.NewKey(nil)
	b, errB := crypt.NewKey(nil)
	if errA != nil || errB != nil || a.String() == b.String() {
		t.Error("random keys repeat")
	}

	if _, err := crypt.NewKey(strings.NewReader("short")); err == nil {
		t.Error("a key was made of 5 bytes")
	}

	for _, bad := range []string{"", "x", k.String()[1:], k.String() + "A", strings.Repeat("!", 76),
		strings.Repeat("A", 76)[:75] + "B"} {
		if _, err := crypt.ParseKey(bad); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
}

// A key in a log line, an error or a printed struct must not be the secret.
func TestAttack27KeyNotPrinted(t *testing.T) {
	k := testKey(t)
	var buf bytes.Buffer
	for _, v := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&buf, v, k)
		fmt.Fprintf(&buf, v, &k)
		fmt.Fprintf(&buf, v, struct{ K crypt.Key }{k})
	}
	slog.New(slog.NewTextHandler(&buf, nil)).Info("test", "key", k)
	slog.New(slog.NewJSONHandler(&buf, nil)).Info("test", "key", k, "in", struct{ K crypt.Key }{k})
	if s := buf.String(); strings.Contains(s, k.String()[:8]) ||
		strings.Contains(s, fmt.Sprintf("%x", k.String()[:8])) {
		t.Errorf("printed: %s", s)
	}
}

func TestSealOpen(t *testing.T) {
	k := testKey(t)
	nonce := strings.Repeat("n", crypt.NonceLen)
	for n := range 70 {
		body := bytes.Repeat([]byte{byte(n)}, n)
		for _, nonce := range []string{"", nonce} {
			blob := k.AppendSeal([]byte("head"), body, nonce)
			if string(blob[:4]) != "head" {
				t.Fatal("dst was not kept")
			}

			blob = blob[4:]
			if len(blob) > len(body)+len(nonce)+crypt.Overhead {
				t.Fatalf("%d bytes for %d", len(blob), n)
			}

			got, err := k.OpenReply(blob, nonce)
			if err != nil || !bytes.Equal(got, body) {
				t.Fatalf("%d bytes: %v", n, err)
			}
		}
	}

	a, b := k.Seal(nil, ""), k.Seal(nil, "")
	if bytes.Equal(a, b) {
		t.Error("the initialisation vector repeats")
	}

	other, err := crypt.NewKey(nil)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := other.Open(a); !errors.Is(err, crypt.ErrOpen) {
		t.Errorf("another key: %v", err)
	}

	if _, err := (crypt.Key{}).Open(a); !errors.Is(err, crypt.ErrOpen) {
		t.Errorf("zero key: %v", err)
	}
}

// A reply with another request's nonce, or none, is no reply.
func TestAttack8ReplyNonce(t *testing.T) {
	k := testKey(t)
	ours, theirs := strings.Repeat("a", 32), strings.Repeat("b", 32)
	if _, err := k.OpenReply(k.Seal([]byte{0xc0}, theirs), ours); !errors.Is(err, crypt.ErrNonce) {
		t.Errorf("foreign nonce: %v", err)
	}
	if _, err := k.OpenReply(k.Seal([]byte{0xc0}, ""), ours); !errors.Is(err, crypt.ErrNonce) {
		t.Errorf("no nonce: %v", err)
	}
}

// Every single-bit change and every truncation is refused with the one error.
func TestAttack28OneError(t *testing.T) {
	k := testKey(t)
	blob := k.Seal([]byte("body"), "")
	for i := range blob {
		for bit := range 8 {
			bad := bytes.Clone(blob)
			bad[i] ^= 1 << bit
			if _, err := k.Open(bad); err != crypt.ErrOpen {
				t.Fatalf("byte %d bit %d: %v", i, bit, err)
			}
		}
	}

	for n := range blob {
		if _, err := k.Open(blob[:n]); err != crypt.ErrOpen {
			t.Fatalf("cut to %d: %v", n, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	k := testKey(f)
	f.Add(k.Seal([]byte("x"), ""))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, blob []byte) {
		body, err := k.Open(blob)
		if err != nil && body != nil {
			t.Error("a body came with an error")
		}
		if err == nil && len(body) >= len(blob) {
			t.Error("the body is longer than its blob")
		}
	})
}

func BenchmarkSeal400(b *testing.B) {
	k, body := testKey(b), make([]byte, 400)
	b.SetBytes(400)
	b.ReportAllocs()
	for b.Loop() {
		k.Seal(body, "")
	}
}

func BenchmarkOpen400(b *testing.B) {
	k := testKey(b)
	blob := k.Seal(make([]byte, 400), "")
	b.SetBytes(400)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Open(blob); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSeal1MiB(b *testing.B) {
	k, body := testKey(b), make([]byte, 1<<20)
	dst := make([]byte, 0, 1<<20+crypt.Overhead)
	b.SetBytes(1 << 20)
	for b.Loop() {
		k.AppendSeal(dst, body, "")
	}
}

// Open accepts the results of sealing in place, at every size around a block and around the chunks
// that are encrypted at once.
func TestSealInPlace(t *testing.T) {
	k := testKey(t)
	nonce := strings.Repeat("n", crypt.NonceLen)
	for _, n := range []int{0, 1, 7, 8, 9, 15, 16, 17, 32<<10 - 49, 32<<10 - 48, 32<<10 - 47, 32 << 10,
		64<<10 + 1, 1<<20 + 3} {
		body := bytes.Repeat([]byte{byte(n), 'b'}, n/2+1)[:n]
		b := append([]byte("head"), make([]byte, crypt.Room(nonce))...)
		b = k.SealInPlace(append(b, body...), 4, nonce)
		if string(b[:4]) != "head" {
			t.Fatalf("%d bytes: what is in front was changed", n)
		}

		if max := 4 + n + len(nonce) + crypt.Overhead; len(b) > max {
			t.Errorf("%d bytes: %d sealed, Overhead promises %d", n, len(b), max)
		}

		got, err := k.OpenReply(b[4:], nonce)
		if err != nil || !bytes.Equal(got, body) {
			t.Fatalf("%d bytes: opened %d, %v", n, len(got), err)
		}

		b[len(b)-1]++
		if _, err := k.Open(b[4:]); !errors.Is(err, crypt.ErrOpen) {
			t.Errorf("%d bytes: opens with a wrong MAC", n)
		}
	}
}

func BenchmarkSealInPlace(b *testing.B) {
	k := testKey(b)
	buf := make([]byte, 1<<20+1024)
	b.SetBytes(1 << 20)
	for b.Loop() {
		k.SealInPlace(buf[:crypt.Room("")+1<<20], 0, "")
	}
}

func TestOpenInPlace(t *testing.T) {
	key := testKey(t)
	other, err := crypt.NewKey(nil)
	if err != nil {
		t.Fatal(err)
	}

	body := []byte("body of a request")
	blob := key.Seal(body, "")
	sealed := bytes.Clone(blob)
	if _, err := other.OpenInPlace(blob); !errors.Is(err, crypt.ErrOpen) || !bytes.Equal(blob, sealed) {
		t.Fatalf("with another key: %v, and the blob is changed: %t", err, !bytes.Equal(blob, sealed))
	}

	got, err := key.OpenInPlace(blob)
	if err != nil || !bytes.Equal(got, body) {
		t.Fatalf("%q, %v", got, err)
	}

	if i := bytes.Index(blob, body); i < 0 || &blob[i] != &got[0] {
		t.Error("the body is not a part of the blob")
	}
}
