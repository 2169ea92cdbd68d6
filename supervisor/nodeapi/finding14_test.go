package nodeapi_test

import (
	"context"
	"crypto"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"filippo.io/nistec"

	"saltern/supervisor/nodeapi"
)

// impostor answers at a peer's address. It has a key of its own, speaks
// whichever protocol the machine asks for, and knows all that it has seen and
// done.
type impostor struct {
	key      *rsa.PrivateKey
	pub      string
	guess    string // what it makes its share of
	drop     bool   // it ends the connection when it has the proof
	protocol int    // of the machine

	bind                   []byte
	machineCert, cert      string
	machineNonce, nonce    string
	machineShare, ownShare []byte
	y                      []byte
	proof                  []byte
	hellos, proofs         int
}

func hashOf(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// transcript is what proofs of both protocols are about.
func (i *impostor) transcript(who string) []byte {
	h := sha256.New()
	label := fmt.Sprintf("EXPORTER-saltern-join-%d", i.protocol)
	for _, p := range []string{label, who, string(i.bind), i.machineNonce, i.nonce, i.machineCert, i.cert} {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return h.Sum(nil)
}

func scalar(secret string) []byte {
	b, _ := pbkdf2.Key(sha256.New, secret, []byte("saltern-join-2"), 60000, 48)
	n, _ := new(big.Int).SetString("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551", 16)
	return new(big.Int).Mod(new(big.Int).SetBytes(b), n).FillBytes(make([]byte, 32))
}

func times(point string, w []byte) *nistec.P256Point {
	b, _ := hex.DecodeString(point)
	p, err := nistec.NewP256Point().SetBytes(b)
	if err == nil {
		p, err = p.ScalarMult(p, w)
	}
	if err != nil {
		panic(err)
	}
	return p
}

// check reports whether what was seen fits a guess.
func (i *impostor) check(guess string) bool {
	keyHash := nodeapi.KeyHash(i.pub)
	if i.protocol == 1 {
		key, _ := pbkdf2.Key(sha256.New, guess, []byte("saltern-join-1 "+keyHash), 60000, 32)
		m := hmac.New(sha256.New, key)
		m.Write(i.transcript("machine"))
		return hex.EncodeToString(m.Sum(nil)) == string(i.proof)
	}

	// SPAKE2 as RFC 9382 has it, with the guess in place of the secret.
	w := scalar(guess)
	k, err := nistec.NewP256Point().SetBytes(i.machineShare)
	if err != nil {
		panic(err)
	}

	k.Add(k, times("03886e2f97ace46e55ba9dd7242579f2993b64e16ef3dcab95afd497333d8fa12f", w)) // minus w M
	k.ScalarMult(k, i.y)
	var tt []byte
	for _, p := range [][]byte{[]byte("machine " + i.machineCert), []byte("cluster " + i.cert),
		i.machineShare, i.ownShare, k.Bytes(), w} {
		tt = binary.LittleEndian.AppendUint64(tt, uint64(len(p)))
		tt = append(tt, p...)
	}

	sum := sha256.Sum256(tt)
	keys, _ := hkdf.Key(sha256.New, sum[16:], nil, "ConfirmationKeys"+string(i.transcript("exchange "+keyHash)), 32)
	m := hmac.New(sha256.New, keys[:16])
	m.Write(tt)

	return hmac.Equal(m.Sum(nil), i.proof)
}

func (i *impostor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var q struct {
		Protocol int
		Nonce    string
		Share    []byte
		Proof    json.RawMessage
	}

	_ = json.Unmarshal(body, &q)
	if strings.HasSuffix(r.URL.Path, "/prove") {
		i.proofs++
		if i.protocol == 1 {
			i.proof = []byte(strings.Trim(string(q.Proof), `"`))
		} else {
			_ = json.Unmarshal(q.Proof, &i.proof)
		}

		if i.drop {
			panic(http.ErrAbortHandler)
		}

		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"code": "secret", "error": "no"}`)
		return
	}

	i.hellos++
	i.protocol = q.Protocol
	i.machineNonce = q.Nonce
	i.machineShare = q.Share
	i.nonce = strings.Repeat("ab", 32)
	i.machineCert = hashOf(r.TLS.PeerCertificates[0])
	i.bind, _ = r.TLS.ExportKeyingMaterial(fmt.Sprintf("EXPORTER-saltern-join-%d", q.Protocol), nil, 32)
	sig, _ := rsa.SignPSS(rand.Reader, i.key, crypto.SHA256, i.transcript("cluster key"),
		&rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256})
	y, _ := ecdh.P256().GenerateKey(rand.Reader)
	i.y = y.Bytes()
	share, _ := nistec.NewP256Point().ScalarBaseMult(i.y)
	share.Add(share, times("03d8bbd6c639c62937b04d997f38c3770719c629d7014d49a24b4f98baa1292b49", scalar(i.guess)))
	i.ownShare = share.Bytes()
	_ = json.NewEncoder(w).Encode(map[string]any{
		"protocol":  q.Protocol,
		"version":   "v1",
		"nonce":     i.nonce,
		"key":       i.pub,
		"signature": sig,
		"share":     i.ownShare,
		"time":      time.Now(),
	})
}

func (i *impostor) serve(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}

	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}

	i.key, i.pub = key, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	srv := httptest.NewUnstartedServer(i)
	srv.TLS = &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert, SessionTicketsDisabled: true}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	i.cert = hashOf(srv.Certificate())

	return srv.Listener.Addr().String()
}

func meetIt(t *testing.T, address, secret string) error {
	t.Helper()
	id, err := nodeapi.LoadIdentity(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = nodeapi.Meet(ctx, id, nodeapi.Ask{Address: address, Secret: secret, Version: "v1"})
	if err == nil {
		t.Error("the impostor was believed")
	}
	return err
}

// TestFinding14OfflineGuessing: who answers at the peer's address and does not
// know the secret keeps all that it has seen, and tries a dictionary on it that
// holds the secret. Nothing fits. (With protocol 1 the secret was found.) The
// one secret that it made its share of can be checked: a guess for each
// connection, no more.
func TestFinding14OfflineGuessing(t *testing.T) {
	const secret = "correct-horse-battery-staple"
	dictionary := []string{"password-password", "letmein-letmein-1", secret, "Tr0ub4dor-and-three",
		"a-guess-of-the-impostor"}
	for _, tt := range []struct {
		guess string
		fits  string // what of the dictionary fits
	}{{"a-guess-of-the-impostor", ""}, {secret, secret}} {
		i := &impostor{guess: tt.guess}
		if err := meetIt(t, i.serve(t), secret); !errors.Is(err, nodeapi.ErrSecret) {
			t.Errorf("guess %q: %v", tt.guess, err)
		}

		if i.hellos != 1 || i.proofs != 1 || len(i.proof) == 0 {
			t.Fatalf("guess %q: %d hellos, %d proofs: the machine gave more than one guess, or none",
				tt.guess, i.hellos, i.proofs)
		}

		got := ""
		for _, word := range dictionary {
			if i.check(word) {
				got += word
			}
		}

		if got != tt.fits {
			t.Errorf("with the guess %q, what was seen fits %q, want %q", tt.guess, got, tt.fits)
		}
	}
}
