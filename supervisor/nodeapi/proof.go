package nodeapi

import (
	"crypto"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"saltern/supervisor/nodeapi/internal/spake2"
)

// A machine and a cluster authenticate each other on a TLS connection whose two ends do not know
// each other. Every proof is bound to that connection by a value that both ends derive from it (RFC
// 8446 §7.5, RFC 9266). A man in the middle has two connections with two values, and cannot forward
// a proof.
//
//  1. Both send their shares of a password-authenticated exchange (package
//     spake2). A share reveals nothing of the secret.
//  2. The cluster proves itself by its key: it signs the value. A machine that
//     knows the key's hash from a join string ends the connection if the key is another.
//  3. The machine sends its confirmation. The cluster compares it, and counts a
//     wrong one as a guess.
//  4. The cluster sends its confirmation. For a machine without a hash
//     this is the only proof, and the machine believes nothing before.
//
// An attacker who answers at the address of a node without knowing the secret can test one guess,
// the one from which its share was made, and nothing afterwards:
// docs/decisions/0001-joining-pake.md. The secret is nevertheless stretched, so that guessing stays
// slow if the group is ever broken.
const (
	exporterLabel = "EXPORTER-saltern-join-2"
	stretchSalt   = "saltern-join-2"
	stretchRounds = 60000
	stretchBytes  = 48
	nonceBytes    = 32
)

// binding returns the value to which proofs on this connection are bound.
func binding(s *tls.ConnectionState) ([]byte, error) {
	if s == nil || s.Version < tls.VersionTLS13 {
		return nil, errors.New("join: not a TLS 1.3 connection")
	}
	return s.ExportKeyingMaterial(exporterLabel, nil, 32)
}

// KeyHash returns the hash of a public key file of the cluster, in the form used in join strings.
// It equals Salt's cluster_pub_fingerprint.
func KeyHash(text string) string {
	sum := sha256.Sum256([]byte(strings.TrimSpace(text) + "\n"))
	return hex.EncodeToString(sum[:])
}

// Finger returns the fingerprint of the cluster's public key that minions compare (master_finger):
// the SHA-256 of the lines between the first and the last, in pairs of digits (Salt's
// utils/crypt.py pem_finger).
func (k *ClusterKey) Finger() string {
	_, body, _ := strings.Cut(k.Public, "\n")
	sum := sha256.Sum256([]byte(body[:strings.LastIndex(body, "-----END")]))
	return strings.ReplaceAll(fmt.Sprintf("% x", sum), " ", ":")
}

// ClusterKey is the cluster's key pair: the private half in memory, the public half as the text of
// its file.
type ClusterKey struct {
	key *rsa.PrivateKey
	// Public is the PEM text, Hash the hash of that text.
	Public, Hash string
}

// ParseClusterKey parses the text of cluster.pem, in PKCS#1 or PKCS#8.
func ParseClusterKey(text []byte) (*ClusterKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("the cluster's key is not a PEM file")
	}

	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		any, err8 := x509.ParsePKCS8PrivateKey(block.Bytes)
		k, ok := any.(*rsa.PrivateKey)
		if err8 != nil || !ok {
			return nil, fmt.Errorf("the cluster's key cannot be read: %w", err)
		}
		key = k
	}

	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, err
	}

	pub := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	return &ClusterKey{key: key, Public: pub, Hash: KeyHash(pub)}, nil
}

// IsPublic reports whether text is the public half of this key, in any form that Salt writes.
func (k *ClusterKey) IsPublic(text []byte) bool {
	block, _ := pem.Decode(text)
	if block == nil {
		return false
	}
	if pub, err := x509.ParsePKCS1PublicKey(block.Bytes); err == nil {
		return k.key.PublicKey.Equal(pub)
	}
	pub, err := x509.ParsePKIXPublicKey(block.Bytes)
	return err == nil && k.key.PublicKey.Equal(pub)
}

// NewClusterKey creates the key of a new cluster and returns it as PEM text.
func NewClusterKey() ([]byte, error) {
	// Salt's default size; minions check a signature of this key for every job
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), nil
}

// transcript returns the digest that proofs sign: the prover, the connection, the nonces and the
// certificates.
func transcript(prover string, bind []byte, machine, cluster, machineCert, clusterCert string) []byte {
	h := sha256.New()
	for _, p := range []string{exporterLabel, prover, string(bind), machine, cluster, machineCert, clusterCert} {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return h.Sum(nil)
}

var pss = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}

func (k *ClusterKey) signDigest(digest []byte) ([]byte, error) {
	return rsa.SignPSS(rand.Reader, k.key, crypto.SHA256, digest, pss)
}

// verifyCluster verifies a signature with the public key that came with it. The caller checks
// whether that key is the cluster's.
func verifyCluster(public string, digest, sig []byte) error {
	block, _ := pem.Decode([]byte(public))
	if block == nil {
		return errors.New("the cluster's public key is not a PEM file")
	}
	any, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return fmt.Errorf("the cluster's public key: %w", err)
	}
	pub, ok := any.(*rsa.PublicKey)
	if !ok || pub.N.BitLen() < 2048 || pub.N.BitLen() > 8192 {
		return errors.New("the cluster's public key is not an RSA key of 2048 to 8192 bits")
	}
	return rsa.VerifyPSS(pub, crypto.SHA256, digest, sig, pss)
}

// stretch derives the key exchange's input from a secret, slowly.
func stretch(secret string) (spake2.Secret, error) {
	b, err := pbkdf2.Key(sha256.New, secret, []byte(stretchSalt), stretchRounds, stretchBytes)
	if err != nil {
		return spake2.Secret{}, err
	}
	return spake2.NewSecret(b)
}

// meetingNames returns everything besides the secret on which both ends of a meeting must agree:
// their certificates, the connection, the nonces, and the key that the cluster has shown.
func meetingNames(bind []byte, machine, cluster, machineCert, clusterCert, keyHash string) spake2.Names {
	return spake2.Names{A: []byte("machine " + machineCert), B: []byte("cluster " + clusterCert),
		Bound: transcript("exchange "+keyHash, bind, machine, cluster, machineCert, clusterCert)}
}

func newNonce() string {
	b := make([]byte, nonceBytes)
	_, _ = rand.Read(b) // rand.Read never fails
	return hex.EncodeToString(b)
}

func validNonce(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == nonceBytes
}
