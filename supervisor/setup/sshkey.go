package setup

import (
	"bytes"
	"crypto/rsa"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

const (
	maxSSHKeys   = 32
	maxSSHKey    = 8192 // bytes of a key's line
	leastRSABits = 2048 // RequiredRSASize in the image's sshd_config
)

// keyTypes lists the key types that the image's sshd accepts (PubkeyAcceptedAlgorithms).
var keyTypes = []string{ssh.KeyAlgoED25519, ssh.KeyAlgoRSA, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384,
	ssh.KeyAlgoECDSA521,
	ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256}

// SSHKey is a public key that sshd accepts.
type SSHKey struct {
	Type        string
	Fingerprint string // "SHA256:…", as ssh-keygen -l shows the key
	Comment     string
}

// ParseSSHKey parses one line of a file such as ~/.ssh/id_ed25519.pub. It returns an error for keys
// that the image's sshd would not accept, because an administrator without another way to log in
// would be locked out. It also returns an error for options before the key. An administrator who is
// logged in can add options to ~/.ssh/authorized_keys later, and remove them again.
func ParseSSHKey(line string) (SSHKey, error) {
	const example = "is not a public key as in ~/.ssh/id_ed25519.pub"
	words := strings.Fields(line)
	switch {
	case len(line) > maxSSHKey:
		return SSHKey{}, fmt.Errorf("has more than %d bytes", maxSSHKey)
	case strings.ContainsAny(line, "\n\r\x00"):
		return SSHKey{}, errors.New("is more than one line")
	case strings.Contains(line, "PRIVATE KEY"):
		return SSHKey{}, errors.New("is a private key: keep it to yourself, " +
			"and give the line in the file that ends in .pub")
	case len(words) >= 1 && strings.Contains(words[0], "-cert-v01@"):
		return SSHKey{}, errors.New("is a certificate: give the public key that it is for")
	case len(words) < 2 || !slices.Contains(keyTypes, words[0]):
		return SSHKey{}, withOptions(line, example)
	}

	key, comment, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil || key.Type() != words[0] {
		return SSHKey{}, fmt.Errorf("is damaged: what stands behind %s is not a complete key; copy the whole line again",
			words[0])
	}
	if !bytes.Equal(ssh.MarshalAuthorizedKey(key), fmt.Appendf(nil, "%s %s\n", words[0], words[1])) {
		return SSHKey{}, errors.New("is damaged: there is more behind the key; copy the whole line again")
	}

	if public, ok := key.(ssh.CryptoPublicKey); ok {
		if k, ok := public.CryptoPublicKey().(*rsa.PublicKey); ok && k.N.BitLen() < leastRSABits {
			return SSHKey{}, fmt.Errorf("has %d bits, and sshd takes RSA keys from %d on: "+
				"ssh-keygen -t ed25519 makes a better one",
				k.N.BitLen(), leastRSABits)
		}
	}

	return SSHKey{Type: key.Type(), Fingerprint: ssh.FingerprintSHA256(key), Comment: comment}, nil
}

// withOptions returns the error for a line that is not a key. If the line has options before a key,
// the error says that. Otherwise its text is example.
func withOptions(line, example string) error {
	_, _, options, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err == nil && len(options) > 0 {
		return errors.New("has options before the key, which are not taken here: " +
			"add them to ~/.ssh/authorized_keys later")
	}
	return errors.New(example)
}

// letsIn reports whether a line of authorized_keys has a valid key, with or without options.
func letsIn(line string) bool {
	_, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	return err == nil
}

// fingerprints returns the fingerprints of keys in the form of ssh-keygen -l, so that a person can
// compare them, or "" if there are no keys.
func fingerprints(lines []string) string {
	var names []string
	for _, line := range lines {
		if k, err := ParseSSHKey(line); err == nil {
			names = append(names, "SSH key "+k.Fingerprint)
		}
	}
	return strings.Join(names, ", ")
}
