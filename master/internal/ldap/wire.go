package ldap

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"saltern/internal/printable"
)

// Bounds of the directory's messages.
const (
	maxMessage = 1 << 20 // bytes of one message
	maxSession = 8 << 20 // bytes of all messages of a session
)

// Tags of the operations of RFC 4511, and of parts of the operations.
const (
	bindRequest     = asn1.Tag(0x60)
	bindResponse    = 0x61
	unbindRequest   = asn1.Tag(0x42)
	searchRequest   = asn1.Tag(0x63)
	searchEntry     = 0x64
	searchDone      = 0x65
	searchReference = 0x73
	extendedRequest = asn1.Tag(0x77)
	extendedAnswer  = 0x78
	intermediate    = 0x79
	controlsTag     = 0xa0
	contextZero     = asn1.Tag(0x80) // tag of a bind's password and of an extended request's name

	sequenceTag, setTag, integerTag, enumTag, octetsTag = 0x30, 0x31, 0x02, 0x0a, 0x04
)

// errWire means that the received bytes are not valid LDAP.
var errWire = errors.New("what the directory sends is not LDAP")

// element splits the first element off b. It returns the element's tag, its content, and the bytes
// after it. LDAP uses only definite lengths and tags of one byte (RFC 4511, 5.1). Active Directory
// writes lengths with leading zeros.
func element(b []byte) (tag byte, content, rest []byte, err error) {
	if len(b) < 2 || b[0]&0x1f == 0x1f {
		return 0, nil, nil, errWire
	}

	tag = b[0]
	n, b := int(b[1]), b[2:]
	if n >= 0x80 {
		size := n & 0x7f
		if size == 0 || size > 4 || size > len(b) {
			return 0, nil, nil, errWire
		}

		n = 0
		for _, c := range b[:size] {
			n = n<<8 | int(c)
		}

		b = b[size:]
	}

	if n < 0 || n > len(b) {
		return 0, nil, nil, errWire
	}

	return tag, b[:n], b[n:], nil
}

// elementOf works like element, but returns an error if the tag is not want.
func elementOf(b []byte, want byte) (content, rest []byte, err error) {
	tag, content, rest, err := element(b)
	if err == nil && tag != want {
		err = errWire
	}
	return content, rest, err
}

// number reads a non-negative integer of at most 31 bits with the tag want from b. It returns the
// integer and the bytes after it.
func number(b []byte, want byte) (int, []byte, error) {
	c, rest, err := elementOf(b, want)
	if err != nil || len(c) == 0 || len(c) > 5 || c[0]&0x80 != 0 {
		return 0, nil, errWire
	}
	n := 0
	for _, x := range c {
		n = n<<8 | int(x)
	}
	if n > 1<<31-1 {
		return 0, nil, errWire
	}
	return n, rest, nil
}

// message is one message from a directory.
type message struct {
	id       int
	op       byte
	body     []byte // content of the operation
	controls []byte
}

// readMessage reads one message of at most limit bytes. It also returns the length of the message.
func readMessage(r *bufio.Reader, limit int) (message, int, error) {
	head := make([]byte, 2, 6)
	if _, err := io.ReadFull(r, head); err != nil {
		return message{}, 0, err
	}
	if head[0] != sequenceTag {
		return message{}, 0, errWire
	}

	n := int(head[1])
	if n >= 0x80 {
		size := n & 0x7f
		if size == 0 || size > 4 {
			return message{}, 0, errWire
		}

		head = head[:2+size]
		if _, err := io.ReadFull(r, head[2:]); err != nil {
			return message{}, 0, err
		}

		n = 0
		for _, c := range head[2:] {
			n = n<<8 | int(c)
		}
	}

	if n < 0 || n > limit {
		return message{}, 0, fmt.Errorf("the directory sends more than is accepted (%d bytes, %d MiB in all)",
			maxMessage, maxSession>>20)
	}

	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return message{}, 0, err
	}

	m, err := parseMessage(b)
	return m, n, err
}

func parseMessage(b []byte) (m message, err error) {
	if m.id, b, err = number(b, integerTag); err != nil {
		return m, err
	}
	if m.op, m.body, b, err = element(b); err != nil {
		return m, err
	}
	if len(b) > 0 {
		m.controls, _, err = elementOf(b, controlsTag)
	}
	return m, err
}

// resultError is an error result that the directory returned.
type resultError struct {
	code int
	text string // message of the directory, made safe for display
}

// Result codes that are treated specially (RFC 4511, appendix A).
const (
	sizeLimitExceeded        = 4
	constraintViolation      = 19
	noSuchObject             = 32
	invalidDNSyntax          = 34
	inappropriateAuth        = 48
	invalidCredentials       = 49
	insufficientAccessRights = 50
	unwillingToPerform       = 53
)

// resultNames holds the names of the result codes that messages for administrators use.
var resultNames = map[int]string{
	1:                        "operations error",
	2:                        "protocol error",
	3:                        "time limit exceeded",
	sizeLimitExceeded:        "size limit exceeded",
	8:                        "stronger authentication required",
	10:                       "referral",
	13:                       "confidentiality required: use TLS",
	constraintViolation:      "constraint violation",
	noSuchObject:             "no such object",
	invalidDNSyntax:          "invalid DN syntax",
	inappropriateAuth:        "inappropriate authentication",
	invalidCredentials:       "invalid credentials",
	insufficientAccessRights: "insufficient access rights",
	51:                       "busy",
	52:                       "unavailable",
	unwillingToPerform:       "unwilling to perform",
	80:                       "other error",
}

func (e *resultError) Error() string {
	name, known := resultNames[e.code]
	if !known {
		name = fmt.Sprintf("result %d", e.code)
	}
	if e.text != "" {
		name += " (" + e.text + ")"
	}
	return name
}

// result returns the error in an LDAPResult, or nil if the result is a success.
func result(body []byte) error {
	code, rest, err := number(body, enumTag)
	if err != nil {
		return err
	}

	_, rest, err = elementOf(rest, octetsTag) // skips matchedDN
	if err != nil {
		return err
	}

	text, _, err := elementOf(rest, octetsTag)
	if err != nil {
		return err
	}
	if code == 0 {
		return nil
	}

	return &resultError{code, printable.Brief(string(text), 200)}
}

// entry is one entry found by a search.
type entry struct {
	dn string
	// attrs holds the values by attribute name in lower case. It lacks values that are not UTF-8.
	attrs map[string][]string
}

// values returns the values of an attribute, ignoring the case of its name.
func (e entry) values(name string) []string { return e.attrs[strings.ToLower(name)] }

func parseEntry(body []byte) (entry, error) {
	dn, rest, err := elementOf(body, octetsTag)
	if err != nil {
		return entry{}, err
	}

	list, _, err := elementOf(rest, sequenceTag)
	if err != nil {
		return entry{}, err
	}
	if !utf8.Valid(dn) {
		return entry{}, errWire
	}

	e := entry{string(dn), map[string][]string{}}
	for len(list) > 0 {
		var attr, name, set []byte
		if attr, list, err = elementOf(list, sequenceTag); err != nil {
			return e, err
		}

		if name, attr, err = elementOf(attr, octetsTag); err != nil {
			return e, err
		}

		if set, _, err = elementOf(attr, setTag); err != nil {
			return e, err
		}

		key := strings.ToLower(string(name))
		for len(set) > 0 {
			var v []byte
			if v, set, err = elementOf(set, octetsTag); err != nil {
				return e, err
			}
			if utf8.Valid(v) {
				e.attrs[key] = append(e.attrs[key], string(v))
			}
		}
	}

	return e, nil
}

// pagedResults is the OID of the control of RFC 2696.
const pagedResults = "1.2.840.113556.1.4.319"

// nextPage returns the cookie for the next page from an answer's controls. The cookie is empty
// after the last page.
func nextPage(controls []byte) ([]byte, error) {
	for len(controls) > 0 {
		control, rest, err := elementOf(controls, sequenceTag)
		if err != nil {
			return nil, err
		}

		controls = rest
		oid, control, err := elementOf(control, octetsTag)
		if err != nil {
			return nil, err
		}
		if string(oid) != pagedResults {
			continue
		}

		tag, v, control, err := element(control)
		if err == nil && tag == 0x01 { // skips the criticality
			tag, v, _, err = element(control)
		}

		if err != nil || tag != octetsTag {
			return nil, errWire
		}

		if v, _, err = elementOf(v, sequenceTag); err != nil {
			return nil, err
		}

		if _, v, err = number(v, integerTag); err != nil {
			return nil, err
		}

		cookie, _, err := elementOf(v, octetsTag)
		return cookie, err
	}

	return nil, nil
}

// buildRequest encodes a request.
func buildRequest(id int, op func(*cryptobyte.Builder), controls func(*cryptobyte.Builder)) ([]byte, error) {
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1Int64(int64(id))
		op(b)
		if controls != nil {
			b.AddASN1(controlsTag, controls)
		}
	})
	return b.Bytes()
}

func addText(b *cryptobyte.Builder, s string) { b.AddASN1OctetString([]byte(s)) }
