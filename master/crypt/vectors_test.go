package crypt_test

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/master/crypt"
	"saltern/master/msgpack"
	"saltern/master/value"
)

const wire = "../testdata/wire"

// vector is an entry of the captures' index.
type vector struct {
	File          string
	Decode        string
	Key           string
	Minion        string
	MinionKey     string `json:"minion_key"`
	Request       string
	Keyset        string
	ExpectAES     string `json:"expect_aes"`
	ExpectSession string `json:"expect_session"`
	OneTimeKey    string `json:"expect_one_time_key"`
	SignPub       string `json:"sign_pub"`
	Expect        json.RawMessage
}

func vectors(t testing.TB) []vector {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(wire, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var index struct{ Vectors []vector }
	if err := json.Unmarshal(b, &index); err != nil {
		t.Fatal(err)
	}
	return index.Vectors
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(wire, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func decode(t testing.TB, b []byte) any {
	t.Helper()
	v, err := msgpack.Decode(b, msgpack.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func mapOf(t testing.TB, b []byte) *value.Map {
	t.Helper()
	m, ok := decode(t, b).(*value.Map)
	if !ok {
		t.Fatal("not a map")
	}
	return m
}

func raw(t testing.TB, m *value.Map, key string) []byte {
	t.Helper()
	b, ok := m.Bytes(key)
	if !ok {
		t.Fatalf("no bytes under %q", key)
	}
	return b
}

func private(t testing.TB, name string) *rsa.PrivateKey {
	t.Helper()
	k, err := crypt.LoadPrivate(filepath.Join(wire, name), "")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func masterPub(t testing.TB, keyset string) *rsa.PublicKey {
	t.Helper()
	pub, err := crypt.ParsePublic(read(t, "keys/master"+keyset+"_TESTONLY.pub"))
	if err != nil {
		t.Fatal(err)
	}
	return pub
}

func parseKey(t testing.TB, s string) crypt.Key {
	t.Helper()
	k, err := crypt.ParseKey(s)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Every captured blob can be decrypted, its body is exactly one value, and the body sealed again
// has the same length. Tokens are recovered and created again.
func TestCapturedBlobs(t *testing.T) {
	opened, tokens := 0, 0
	for _, v := range vectors(t) {
		if v.Key == "" || (v.Decode != "aes" && v.Decode != "aes_reply" && v.Decode != "publish") {
			continue
		}

		t.Run(v.File, func(t *testing.T) {
			payload := decode(t, read(t, v.File))
			var blob []byte
			nonce := ""
			switch p := payload.(type) {
			case *value.Map:
				blob = raw(t, p, "load")
			case []byte:
				blob = p
			default:
				t.Fatalf("payload is %T", payload)
			}

			key := parseKey(t, v.Key)
			if v.Decode == "aes_reply" {
				request, err := key.Open(raw(t, mapOf(t, read(t, v.Request)), "load"))
				if err != nil {
					t.Fatal(err)
				}

				nonce = mapOf(t, request).Str("nonce")
				if len(nonce) != crypt.NonceLen {
					t.Fatalf("nonce %q", nonce)
				}
			}

			body, err := key.OpenReply(blob, nonce)
			if err != nil {
				t.Fatal(err)
			}

			got := decode(t, body)
			opened++
			if n := len(key.Seal(body, nonce)); n != len(blob) {
				t.Errorf("sealed again: %d bytes, captured %d", n, len(blob))
			}

			if v.Decode == "publish" {
				err := crypt.Verify(masterPub(t, v.Keyset), crypt.PKCS1SHA1, blob, raw(t, payload.(*value.Map), "sig"))
				if err != nil {
					t.Error(err)
				}
			}

			m, ok := got.(*value.Map)
			if !ok {
				return
			}

			tok, ok := m.Bytes("tok")
			if !ok {
				return
			}

			priv := private(t, "keys/"+m.Str("id")+"_TESTONLY.pem")
			data, err := crypt.X931Recover(&priv.PublicKey, tok)
			if err != nil || string(data) != "salt" {
				t.Errorf("token recovers to %q, %v", data, err)
			}

			again, err := crypt.X931Sign(priv, []byte("salt"))
			if err != nil || !bytes.Equal(again, tok) {
				t.Errorf("token made again differs, %v", err)
			}

			tokens++
		})
	}

	if opened < 100 || tokens < 45 {
		t.Errorf("only %d blobs and %d tokens were checked", opened, tokens)
	}
}

// Every captured sign-in reply: signature, wrapped keys, digest, master
// signature.
func TestCapturedSignIns(t *testing.T) {
	signer := private(t, "keys/masterA_TESTONLY.pem")
	accepted := 0
	for _, v := range vectors(t) {
		if v.Decode != "auth" {
			continue
		}

		t.Run(v.File, func(t *testing.T) {
			request := mapOf(t, read(t, v.Request)).Map("load")
			enc, algo := request.Str("enc_algo"), request.Str("sig_algo")
			reply := mapOf(t, read(t, v.File))
			load := raw(t, reply, "load")
			pub := masterPub(t, v.Keyset)
			if err := crypt.Verify(pub, algo, load, raw(t, reply, "sig")); err != nil {
				t.Fatal(err)
			}

			if v.Keyset == "A" {
				sig, err := crypt.Sign(signer, algo, load)
				if err != nil || !bytes.Equal(sig, raw(t, reply, "sig")) {
					t.Errorf("signature made again differs, %v", err)
				}
			}

			m := mapOf(t, load)
			if m.Str("enc") != "pub" {
				return
			}

			accepted++
			priv := private(t, v.MinionKey)
			for field, want := range map[string]string{"aes": v.ExpectAES, "session": v.ExpectSession} {
				got, err := crypt.Decrypt(priv, enc, raw(t, m, field))
				if err != nil || string(got) != want {
					t.Errorf("%s decrypts to another key, %v", field, err)
				}
			}

			sum := sha256.Sum256([]byte(v.ExpectAES))
			digest := hex.EncodeToString(sum[:])
			if got, err := crypt.X931Recover(pub, raw(t, m, "sig")); err != nil || string(got) != digest {
				t.Errorf("digest recovers to %q, %v", got, err)
			}

			if got, err := crypt.X931Sign(signer, []byte(digest)); err != nil || !bytes.Equal(got, raw(t, m, "sig")) {
				t.Errorf("digest signed again differs, %v", err)
			}

			if tok, ok := request.Bytes("token"); ok {
				ours, err := crypt.Decrypt(signer, enc, tok)
				if err != nil {
					t.Fatal(err)
				}

				theirs, err := crypt.Decrypt(priv, enc, raw(t, m, "token"))
				if err != nil || !bytes.Equal(ours, theirs) {
					t.Errorf("token does not round-trip, %v", err)
				}
			}

			if s := m.Str("pub_sig"); s != "" {
				checkPubSig(t, v, m, s, algo)
			}

			if text, err := crypt.PublicPEM(pub); err != nil || text != m.Str("pub_key") {
				t.Errorf("public key packs to another text, %v", err)
			}
		})
	}

	if accepted < 8 {
		t.Errorf("only %d accepted replies", accepted)
	}
}

func checkPubSig(t *testing.T, v vector, m *value.Map, text, algo string) {
	t.Helper()
	sig, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(text, "\n"))
	if err != nil {
		t.Fatal(err)
	}

	pub, err := crypt.ParsePublic(read(t, v.SignPub))
	if err != nil {
		t.Fatal(err)
	}

	if err := crypt.Verify(pub, algo, []byte(m.Str("pub_key")), sig); err != nil {
		t.Error(err)
	}

	again, err := crypt.Sign(private(t, "keys/master_sign_TESTONLY.pem"), algo, []byte(m.Str("pub_key")))
	if err != nil || !bytes.Equal(again, sig) {
		t.Errorf("pub_sig made again differs, %v", err)
	}
}

// The pillar replies wrap a one-time key.
func TestCapturedPillars(t *testing.T) {
	n := 0
	for _, v := range vectors(t) {
		if v.Decode != "pillar_reply" {
			continue
		}

		n++
		request := mapOf(t, read(t, v.Request))
		reply := mapOf(t, read(t, v.File))
		text, err := crypt.Decrypt(private(t, v.MinionKey), request.Str("enc_algo"), raw(t, reply, "key"))
		if err != nil || string(text) != v.OneTimeKey {
			t.Fatalf("%s: one-time key differs, %v", v.File, err)
		}

		body, err := parseKey(t, string(text)).Open(raw(t, reply, "pillar"))
		if err != nil {
			t.Fatal(v.File, err)
		}

		signed := mapOf(t, body)
		if err := crypt.Verify(masterPub(t, v.Keyset), request.Str("sig_algo"), raw(t, signed, "data"),
			raw(t, signed, "sig")); err != nil {
			t.Error(v.File, err)
		}
	}

	if n < 4 {
		t.Errorf("only %d pillars", n)
	}
}
