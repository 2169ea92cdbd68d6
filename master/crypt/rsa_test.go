package crypt_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/crypt"
)

func TestSchemes(t *testing.T) {
	priv := private(t, "keys/min6_TESTONLY.pem")
	for _, algo := range []string{crypt.OAEPSHA1, crypt.OAEPSHA224} {
		ct, err := crypt.Encrypt(&priv.PublicKey, algo, []byte("secret"))
		if err != nil {
			t.Fatal(err)
		}

		if got, err := crypt.Decrypt(priv, algo, ct); err != nil || string(got) != "secret" {
			t.Errorf("%s: %q, %v", algo, got, err)
		}

		ct[5] ^= 1
		if _, err := crypt.Decrypt(priv, algo, ct); err != crypt.ErrDecrypt {
			t.Errorf("%s damaged: %v", algo, err)
		}

		if _, err := crypt.Decrypt(priv, algo, ct[1:]); err != crypt.ErrDecrypt {
			t.Errorf("%s short: %v", algo, err)
		}
	}

	for _, algo := range []string{crypt.PKCS1SHA1, crypt.PKCS1SHA224} {
		sig, err := crypt.Sign(priv, algo, []byte("text"))
		if err != nil {
			t.Fatal(err)
		}

		if err := crypt.Verify(&priv.PublicKey, algo, []byte("text"), sig); err != nil {
			t.Errorf("%s: %v", algo, err)
		}

		if err := crypt.Verify(&priv.PublicKey, algo, []byte("texT"), sig); err != crypt.ErrSignature {
			t.Errorf("%s other text: %v", algo, err)
		}
	}

	for _, algo := range []string{"", "OAEP", "OAEP-SHA256", "oaep-sha1", "PKCS1v15-MD5", "OAEP-SHA1\x00",
		strings.Repeat("A", 10000)} {
		_, e1 := crypt.Encrypt(&priv.PublicKey, algo, nil)
		_, e2 := crypt.Decrypt(priv, algo, nil)
		_, e3 := crypt.Sign(priv, algo, nil)
		e4 := crypt.Verify(&priv.PublicKey, algo, nil, nil)
		for _, err := range []error{e1, e2, e3, e4} {
			if !errors.Is(err, crypt.ErrAlgorithm) || len(err.Error()) > 200 {
				t.Errorf("%.20q: %v", algo, err)
			}
		}
	}

	// A scheme of the wrong kind is unknown as well.
	if _, err := crypt.Sign(priv, crypt.OAEPSHA1, nil); !errors.Is(err, crypt.ErrAlgorithm) {
		t.Error(err)
	}
}

func TestX931(t *testing.T) {
	priv := private(t, "keys/min7_TESTONLY.pem")
	k := priv.Size()
	for _, n := range []int{0, 1, 4, 64, k - 4, k - 2} {
		data := bytes.Repeat([]byte{0xba}, n)
		sig, err := crypt.X931Sign(priv, data)
		if err != nil {
			t.Fatal(n, err)
		}

		if got, err := crypt.X931Recover(&priv.PublicKey, sig); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes: %v", n, err)
		}

		without := *priv
		without.Precomputed = rsa.PrecomputedValues{}
		if again, err := crypt.X931Sign(&without, data); err != nil || !bytes.Equal(again, sig) {
			t.Errorf("%d bytes without precomputed values: %v", n, err)
		}
	}

	if _, err := crypt.X931Sign(priv, make([]byte, k-1)); err == nil {
		t.Error("too much data was taken")
	}

	sig, err := crypt.X931Sign(priv, []byte("salt"))
	if err != nil {
		t.Fatal(err)
	}

	other := new(big.Int).Sub(priv.N, new(big.Int).SetBytes(sig)).FillBytes(make([]byte, k))
	if got, err := crypt.X931Recover(&priv.PublicKey, other); err != nil || string(got) != "salt" {
		t.Errorf("the other root: %q, %v", got, err)
	}

	big1 := bytes.Repeat([]byte{0xff}, k)
	for name, bad := range map[string][]byte{
		"empty": nil, "short": sig[1:], "long": append([]byte{0}, sig...), "zero": make([]byte, k),
		"above the modulus": big1, "random": bytes.Repeat([]byte{0x5a}, k),
	} {
		if _, err := crypt.X931Recover(&priv.PublicKey, bad); err != crypt.ErrX931 {
			t.Errorf("%s: %v", name, err)
		}
	}

	foreign := private(t, "keys/min8_TESTONLY.pem")
	if got, err := crypt.X931Recover(&foreign.PublicKey, sig); err == nil {
		t.Errorf("a foreign key recovered %q", got)
	}
}

// spki packs any modulus and exponent as a public key.
func spki(t testing.TB, n *big.Int, e int) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: n, E: e})
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// oddModulus returns an odd number of that many bits; only by factoring can it be distinguished
// from a product of two primes.
func oddModulus(bits int) *big.Int {
	n := new(big.Int).Lsh(big.NewInt(3), uint(bits-2))
	return n.SetBit(n, 0, 1)
}

func TestAttack18PublicKeys(t *testing.T) {
	good := read(t, "keys/masterA_TESTONLY.pub")
	pkcs1, err := os.ReadFile("testdata/pkcs1.pub")
	if err != nil {
		t.Fatal(err)
	}

	ed, err := x509.MarshalPKIXPublicKey(edPublic())
	if err != nil {
		t.Fatal(err)
	}

	n := oddModulus(2048)
	even := new(big.Int).Lsh(big.NewInt(3), 2046)
	neg := new(big.Int).Neg(n)
	cases := []struct {
		name string
		text []byte
		ok   bool
	}{
		{"a real key", good, true},
		{"white space around", []byte("\n\n " + string(good) + "\r\n"), true},
		{"CRLF", bytes.ReplaceAll(good, []byte("\n"), []byte("\r\n")), true},
		{"PKCS#1", pkcs1, true},
		{"2048 bits", spki(t, n, 65537), true},
		{"4096 bits", spki(t, oddModulus(4096), 65537), true},
		{"exponent 3", spki(t, n, 3), true},
		{"empty", nil, false},
		{"512 bits", spki(t, oddModulus(512), 65537), false},
		{"1024 bits", spki(t, oddModulus(1024), 65537), false},
		{"2047 bits", spki(t, oddModulus(2047), 65537), false},
		{"4097 bits", spki(t, oddModulus(4097), 65537), false},
		{"8192 bits", spki(t, oddModulus(8192), 65537), false},
		{"32768 bits", spki(t, oddModulus(32768), 65537), false},
		{"even modulus", spki(t, even, 65537), false},
		{"negative modulus", spki(t, neg, 65537), false},
		{"zero modulus", spki(t, new(big.Int), 65537), false},
		{"exponent 0", spki(t, n, 0), false},
		{"exponent 1", spki(t, n, 1), false},
		{"exponent 2", spki(t, n, 2), false},
		{"even exponent", spki(t, n, 65536), false},
		{"negative exponent", spki(t, n, -3), false},
		{"exponent 2^31+1", spki(t, n, 1<<31+1), false},
		{"exponent 2^62+1", spki(t, n, 1<<62+1), false},
		{"truncated", good[:len(good)/2], false},
		{"damaged base64", bytes.Replace(good, []byte("M"), []byte("!"), 1), false},
		{"damaged DER", bytes.Replace(good, []byte("MIIB"), []byte("MIIA"), 1), false},
		{"two keys", append(bytes.Clone(good), good...), false},
		{"text before", append([]byte("x\n"), good...), false},
		{"text after", append(bytes.Clone(good), 'x'), false},
		{"headers", bytes.Replace(good, []byte("KEY-----\n"), []byte("KEY-----\nA: b\n\n"), 1), false},
		{"a private key", read(t, "keys/min6_TESTONLY.pem"), false},
		{"Ed25519", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: ed}), false},
		{"a megabyte", bytes.Repeat([]byte("A"), 1<<20), false},
	}

	for _, c := range cases {
		start := time.Now()
		pub, err := crypt.ParsePublic(c.text)
		if took := time.Since(start); took > time.Second {
			t.Errorf("%s took %v", c.name, took)
		}

		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}

		if err != nil && !errors.Is(err, crypt.ErrPublicKey) {
			t.Errorf("%s: %v is not ErrPublicKey", c.name, err)
		}

		if c.ok && pub != nil {
			if _, err := crypt.Encrypt(pub, crypt.OAEPSHA224, make([]byte, crypt.KeyLen)); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}

	if _, err := legacyBounds.ParsePublic(spki(t, oddModulus(1024), 65537)); err != nil {
		t.Error(err)
	}
}

func FuzzParsePublic(f *testing.F) {
	f.Add(read(f, "keys/masterA_TESTONLY.pub"))
	f.Add(read(f, "keys/masterB_TESTONLY.pub"))
	f.Add(spki(f, oddModulus(2048), 3))
	f.Add([]byte("-----BEGIN RSA PUBLIC KEY-----\nMAA=\n-----END RSA PUBLIC KEY-----"))

	for _, v := range vectors(f) {
		if strings.HasPrefix(v.File, "auth_") && v.Decode == "clear" {
			f.Add([]byte(mapOf(f, read(f, v.File)).Map("load").Str("pub")))
		}
	}

	f.Fuzz(func(t *testing.T, text []byte) {
		pub, err := crypt.ParsePublic(text)
		if err != nil {
			return
		}

		if _, err := crypt.Encrypt(pub, crypt.OAEPSHA1, make([]byte, crypt.KeyLen)); err != nil {
			t.Errorf("an accepted key does not encrypt: %v", err)
		}

		_, _ = crypt.X931Recover(pub, make([]byte, pub.Size()))
		out, err := crypt.PublicPEM(pub)
		if err != nil {
			t.Fatal(err)
		}

		again, err := crypt.ParsePublic([]byte(out))
		if err != nil || !again.Equal(pub) {
			t.Errorf("the key does not survive packing: %v", err)
		}
	})
}

func TestNormalizePEM(t *testing.T) {
	for in, want := range map[string]string{
		"":                      "",
		"  a\r\nb\rc\n\n":       "a\nb\nc",
		"a\nb":                  "a\nb",
		"\r\n-- x --\r\ny\r\n ": "-- x --\ny",
	} {
		if got := crypt.NormalizePEM(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestPrivateKeyFiles(t *testing.T) {
	want := private(t, "keys/min6_TESTONLY.pem")
	const pass = "saltern test"
	for _, c := range []struct {
		file, pass string
		err        error
	}{
		{"pkcs8.pem", "", nil},
		{"pkcs8.pem", "not needed", nil},
		{"pkcs1_encrypted.pem", pass, nil},
		{"pkcs1_encrypted.pem", "wrong", crypt.ErrPassphrase},
		{"pkcs1_encrypted.pem", "", crypt.ErrPassphrase},
		{"pkcs8_encrypted.pem", pass, nil},
		{"pkcs8_encrypted.pem", "wrong", crypt.ErrPassphrase},
		{"pkcs8_encrypted.pem", "", crypt.ErrPassphrase},
		{"pkcs8_aes128_sha1.pem", pass, nil},
		{"pkcs8_des3_sha512.pem", pass, nil},
		{"pkcs8_scrypt.pem", pass, crypt.ErrPrivateKey},
		{"pkcs1.pub", "", crypt.ErrPrivateKey},
		{"missing.pem", "", os.ErrNotExist},
	} {
		k, err := crypt.LoadPrivate(filepath.Join("testdata", c.file), c.pass)
		if !errors.Is(err, c.err) {
			t.Errorf("%s with %q: %v", c.file, c.pass, err)
		}

		if err != nil && !strings.Contains(err.Error(), c.file) {
			t.Errorf("error does not name the file: %v", err)
		}

		if c.err == nil && (k == nil || !k.Equal(want)) {
			t.Errorf("%s: another key", c.file)
		}
	}
}

func TestSave(t *testing.T) {
	dir := t.TempDir()
	want := private(t, "keys/min6_TESTONLY.pem")
	for _, pass := range []string{"", "öffne dich"} {
		path := filepath.Join(dir, "k.pem")
		if err := crypt.SavePrivate(path, want, pass); err != nil {
			t.Fatal(err)
		}

		st, err := os.Stat(path)
		if err != nil || st.Mode().Perm() != 0o400 {
			t.Errorf("mode %v, %v", st.Mode(), err)
		}

		if k, err := crypt.LoadPrivate(path, pass); err != nil || !k.Equal(want) {
			t.Errorf("passphrase %q: %v", pass, err)
		}
	}

	if err := crypt.SavePublic(filepath.Join(dir, "k.pub"), &want.PublicKey); err != nil {
		t.Fatal(err)
	}

	text, err := os.ReadFile(filepath.Join(dir, "k.pub"))
	if err != nil {
		t.Fatal(err)
	}

	if pub, err := crypt.ParsePublic(text); err != nil || !pub.Equal(&want.PublicKey) {
		t.Error(err)
	}

	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}

	if err := crypt.SavePrivate(filepath.Join(dir, "no", "k.pem"), want, ""); err == nil {
		t.Error("saved into a folder that is not there")
	}

	if _, err := crypt.GeneratePrivate(1024); err == nil {
		t.Error("made a key of 1024 bits")
	}
}

func FuzzParsePrivate(f *testing.F) {
	files, err := filepath.Glob("testdata/*.pem")
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds", err)
	}

	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}

	f.Fuzz(func(t *testing.T, text []byte) {
		if k, err := crypt.ParsePrivate(text, "x"); err == nil && k == nil {
			t.Error("no key and no error")
		}
	})
}

func BenchmarkX931Sign(b *testing.B) {
	priv := private(b, "keys/min6_TESTONLY.pem")
	for b.Loop() {
		if _, err := crypt.X931Sign(priv, []byte("salt")); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkX931Recover(b *testing.B) {
	priv := private(b, "keys/min6_TESTONLY.pem")
	sig, err := crypt.X931Sign(priv, []byte("salt"))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := crypt.X931Recover(&priv.PublicKey, sig); err != nil {
			b.Fatal(err)
		}
	}
}

func edPublic() ed25519.PublicKey { return make(ed25519.PublicKey, ed25519.PublicKeySize) }

// legacyBounds also accept keys of 1024 bits, which some very old minions still have.
var legacyBounds = crypt.Bounds{Min: 1024, Max: 4096}
