package mastertest

import (
	"crypto/rsa"
	"path/filepath"
	"testing"

	"saltern/master/crypt"
	"saltern/test/check"
	"saltern/test/source"
)

// TestData returns the path of a file below master/testdata.
func TestData(t testing.TB, parts ...string) string {
	t.Helper()
	return filepath.Join(append([]string{source.Root(t), "master", "testdata"}, parts...)...)
}

// KeyPair returns the private key with this name. The key pairs were recorded with the captures of
// Salt's traffic.
func KeyPair(t testing.TB, name string) *rsa.PrivateKey {
	t.Helper()
	k, err := crypt.LoadPrivate(TestData(t, "wire", "keys", name+"_TESTONLY.pem"), "")
	check.Must(t, err)
	return k
}

// PublicPEM returns the public key of k in the form in which minions send it.
func PublicPEM(t testing.TB, k *rsa.PrivateKey) string {
	t.Helper()
	text, err := crypt.PublicPEM(&k.PublicKey)
	check.Must(t, err)
	return text
}
