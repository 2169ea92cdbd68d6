package setup

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// JoinInfo is what a join string holds.
type JoinInfo struct {
	KeyHash string // of the cluster's public key: proves the cluster before the secret is used
	Secret  string
	Peers   []string
}

var joinForm = regexp.MustCompile(`^sca1\.([0-9a-f]{64})\.(.*)@([^@]+)$`)

// maxJoin bounds a join string.
const maxJoin = 2048

// ParseJoin reads a join string.
func ParseJoin(s string) (JoinInfo, error) {
	s = strings.Join(strings.Fields(s), "") // copied from a terminal, it may be broken over lines
	m := joinForm.FindStringSubmatch(s)
	if len(s) > maxJoin || m == nil {
		return JoinInfo{}, errors.New("is not a join string: sca1.HASH.SECRET@ADDRESS,ADDRESS as printed by applianced join-string on a node of the cluster")
	}
	j := JoinInfo{KeyHash: m[1], Secret: m[2], Peers: strings.Split(m[3], ",")}
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

// String gives the join string.
func (j JoinInfo) String() string {
	return "sca1." + j.KeyHash + "." + j.Secret + "@" + strings.Join(j.Peers, ",")
}

// Secrets: long enough that nobody guesses them, short enough for what masters
// can exchange.
const (
	minSecret = 16
	maxSecret = 128
)

// secretFault says what is wrong with a secret, without repeating it.
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

// freshFault is secretFault of a secret that somebody gives.
func freshFault(s string) string {
	if why := secretFault(s); why != "" {
		return why
	}
	return WeakSecret(s)
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)

// hostForm tells whether s is an IP address or a host name.
func hostForm(s string) bool {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Zone() == "" && !a.IsUnspecified()
	}
	return hostName.MatchString(s) && !strings.Contains(s, "..")
}
