package keys

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxIDLen is the greatest length of a minion id in bytes: that of a full DNS name. Caches append
// the suffix ".p", and even then the id is a legal file name.
const MaxIDLen = 253

// ErrID means that a text is not usable as a minion id. The error that wraps ErrID gives the reason
// but never the text, which may contain anything.
var ErrID = errors.New("invalid minion id")

// ValidID returns nil if id may be the id of a minion, or ErrID with the reason. It refuses what
// Salt 3008.3 refuses (utils/verify.py valid_id: path separators, NUL, empty, "." and "..") and
// also ids that no host has but an attacker might choose: ids over MaxIDLen bytes, invalid UTF-8,
// characters that are not printable (line ends, escapes, bidirectional overrides, spaces other than
// the plain one), a leading dot (hidden files), outer spaces and the glob characters * ? [ ], which
// would make an id match others.
func ValidID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: empty", ErrID)
	case len(id) > MaxIDLen:
		return fmt.Errorf("%w: %d bytes long", ErrID, len(id))
	case id[0] == '.':
		return fmt.Errorf("%w: begins with a dot", ErrID)
	case id[0] == ' ' || id[len(id)-1] == ' ':
		return fmt.Errorf("%w: space at an end", ErrID)
	case strings.ContainsAny(id, `/\`):
		return fmt.Errorf("%w: holds a path separator", ErrID)
	case strings.ContainsAny(id, "*?[]"):
		return fmt.Errorf("%w: holds a glob character", ErrID)
	case !utf8.ValidString(id):
		return fmt.Errorf("%w: not UTF-8", ErrID)
	}

	for _, r := range id {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%w: holds the character %U", ErrID, r)
		}
	}

	return nil
}

// IsPlainID reports whether id is a valid id in which a shell sees nothing but text: of ASCII letters,
// digits and some marks, without a "-" in front. An id with other characters is accepted by an
// administrator, or by a rule of autosign, before it may become part of a command.
func IsPlainID(id string) bool {
	if ValidID(id) != nil || id[0] == '-' {
		return false
	}
	return !strings.ContainsFunc(id, func(r rune) bool {
		isLetter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		return !isLetter && !('0' <= r && r <= '9') && !strings.ContainsRune("-_.:@+,", r)
	})
}
