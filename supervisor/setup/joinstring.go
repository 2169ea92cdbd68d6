package setup

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// JoinInfo is the content of a join string.
type JoinInfo struct {
	KeyHash string // hash of the public key that the cluster must prove first
	Secret  string
	Peers   []string
}

// A join string is sca2.CHECK.HASH.SECRET@ADDRESS,ADDRESS. CHECK has two characters for each of the
// three parts behind it, so that an error message can name the part that was typed wrong. Join
// strings of older versions begin with sca1, and their CHECK is computed differently or missing.
var (
	joinForm   = regexp.MustCompile(`^sca2\.([a-z2-9]{6})\.([^.]*)\.(.*)@([^@]*)$`)
	joinHashed = regexp.MustCompile(`^sca1\.([a-z2-9]{6})\.([^.]*)\.(.*)@([^@]*)$`)
	joinFormer = regexp.MustCompile(`^sca1\.()([0-9a-f]{64})\.(.*)@([^@]+)$`)
	joinHash   = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// maxJoin bounds a join string, in bytes.
const maxJoin = 2048

// ParseJoin reads a join string.
func ParseJoin(s string) (JoinInfo, error) {
	s = strings.Join(strings.Fields(s), "") // a terminal may have broken the copied string into lines
	m, check := joinForm.FindStringSubmatch(s), checkOf
	if m == nil {
		m = joinFormer.FindStringSubmatch(s)
	}
	if m == nil {
		m, check = joinHashed.FindStringSubmatch(s), hashedCheckOf
	}

	if len(s) > maxJoin || m == nil {
		return JoinInfo{}, errors.New("is not a join string, or is cut off: " +
			"it begins with sca2., has an @ near its end, and is printed by applianced join-string on a node of the cluster")
	}

	if err := joinChecked(m[1], m[2:], check); err != nil {
		return JoinInfo{}, err
	}

	j := JoinInfo{KeyHash: m[2], Secret: m[3], Peers: strings.Split(m[4], ",")}
	if !joinHash.MatchString(j.KeyHash) {
		return JoinInfo{}, errors.New("has no hash of the cluster's key, of 64 digits, after its second dot")
	}

	if why := secretFault(j.Secret); why != "" {
		return JoinInfo{}, errors.New("its secret " + why)
	}

	for _, p := range j.Peers {
		if !hostForm(p) {
			return JoinInfo{}, fmt.Errorf("%.60q in it is not an address", p)
		}
	}

	return j, nil
}

// joinChecked compares the parts of a join string with its checksums, which checkOf computes. Its
// error names the parts that do not match. check is "" for a string of a version that had no
// checksums.
func joinChecked(check string, parts []string, checkOf func(string) string) error {
	if check == "" {
		return nil
	}

	var wrong []string
	for i, where := range []string{"after the second dot (the hash)", "after the third dot (the secret)",
		"after the @ (the addresses)"} {
		if check[2*i:2*i+2] != checkOf(parts[i]) {
			wrong = append(wrong, where)
		}
	}

	switch len(wrong) {
	case 0:
		return nil
	case len(parts):
		return errors.New("has a typing error after the first dot, or in more than one place")
	}

	return errors.New("has a typing error " + strings.Join(wrong, ", and one "))
}

// checkAlphabet contains 32 characters, no two of which look alike.
const checkAlphabet = "abcdefghijkmnpqrstuvwxyz23456789"

// A checksum is the sum of a part's characters, each multiplied by another power of checkRoot,
// modulo checkPrime. The prime is larger than the difference of any two characters, and the root's
// first checkPrime-1 powers all differ. So each wrong character, and each swap of two neighbours,
// changes the sum.
const (
	checkPrime = 1021 // the largest prime below 32*32
	checkRoot  = 10   // a primitive root of checkPrime
)

// checkOf returns the two check characters of a part. Every single wrong character and every swap
// of two neighbours changes them. Of other typing errors one in a thousand does not change them.
func checkOf(part string) string {
	sum, weight := 0, 1
	for i := range len(part) {
		weight = weight * checkRoot % checkPrime
		sum = (sum + int(part[i])*weight) % checkPrime
	}
	return string([]byte{checkAlphabet[sum/32], checkAlphabet[sum%32]})
}

// hashedCheckOf returns the checksum of older versions, which missed one in 1024 of all typing
// errors.
func hashedCheckOf(part string) string {
	sum := sha256.Sum256([]byte(part))
	return string([]byte{checkAlphabet[sum[0]%32], checkAlphabet[sum[1]%32]})
}

// String returns the join string.
func (j JoinInfo) String() string {
	peers := strings.Join(j.Peers, ",")
	return "sca2." + checkOf(j.KeyHash) + checkOf(j.Secret) + checkOf(peers) + "." + j.KeyHash + "." +
		j.Secret + "@" + peers
}

// Bounds of a secret's length: long enough that nobody guesses it, and short enough for the
// messages between masters.
const (
	minSecret = 16
	maxSecret = 128
)

// secretFault returns why s cannot be a cluster's secret, without repeating s, or "".
func secretFault(s string) string {
	if len(s) < minSecret {
		return fmt.Sprintf("is shorter than %d characters", minSecret)
	}
	if len(s) > maxSecret {
		return fmt.Sprintf("is longer than %d characters", maxSecret)
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || strings.IndexByte(`"'\`, c) >= 0 {
			return "holds a blank, a quotation mark, a backslash or something that is not ASCII"
		}
	}
	return ""
}

// freshFault returns the fault of a new secret, or "". Besides the checks of secretFault it refuses
// a secret that is easy to guess.
func freshFault(s string) string {
	if why := secretFault(s); why != "" {
		return why
	}
	return WeakSecret(s)
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)

// hostForm reports whether s has the form of an IP address or a host name.
func hostForm(s string) bool {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Zone() == "" && !a.IsUnspecified()
	}
	return hostName.MatchString(s) && !strings.Contains(s, "..")
}
