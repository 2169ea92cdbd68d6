package cluster

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"

	"saltern/master/cluster/wire"
	"saltern/master/crypt"
)

// protocol is the ALPN name that both ends of a connection offer.
const protocol = "saltern-cluster/1"

// certificate wraps a master key for TLS. Peers read only the key and the name, so the certificate
// never expires.
func certificate(id string, key *rsa.PrivateKey) (tls.Certificate, error) {
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: id},
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a certificate of the master key: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// tlsConfig returns the TLS configuration that both ends use. It does not verify certificate
// chains: the handshake proves that the other end possesses its key, and the caller compares that
// key with the pinned one.
func tlsConfig(cert tls.Certificate) *tls.Config {
	return &tls.Config{
		Certificates:           []tls.Certificate{cert},
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{protocol},
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true,
		SessionTicketsDisabled: true, //nolint:gosec // the keys are pinned, see above
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			_, _, err := certOf(raw)
			return err
		},
	}
}

var errCertificate = errors.New("unacceptable certificate")

// certOf returns the name and the key (PEM) in the other end's certificate. Before any costly
// operation it refuses keys of unusual size.
func certOf(raw [][]byte) (id, pem string, err error) {
	if len(raw) != 1 {
		return "", "", errCertificate
	}

	c, err := x509.ParseCertificate(raw[0])
	if err != nil {
		return "", "", errCertificate
	}

	pub, ok := c.PublicKey.(*rsa.PublicKey)
	if !ok || pub.N.BitLen() < crypt.DefaultBounds.Min || pub.N.BitLen() > crypt.DefaultBounds.Max {
		return "", "", errCertificate
	}

	if err := wire.ValidPeer(c.Subject.CommonName); err != nil {
		return "", "", errCertificate
	}

	pem, err = crypt.PublicPEM(pub)
	return c.Subject.CommonName, pem, err
}

// endOf returns the name and the key (PEM) of the other end of an established TLS connection.
func endOf(c *tls.Conn) (id, pem string, err error) {
	s := c.ConnectionState()
	if s.NegotiatedProtocol != protocol || len(s.PeerCertificates) != 1 {
		return "", "", errCertificate
	}
	return certOf([][]byte{s.PeerCertificates[0].Raw})
}
