package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"saltern/internal/durable"
	"saltern/master/saltlog"
)

// Destination is a place to which a rule sends messages. Exactly one of Web, Mail and Syslog is set.
type Destination struct {
	Name string // name of the rule, a slash, and the number of the destination in the rule; for people
	// ID stands for the name of the rule and for where messages go, not for the place in the rule. It
	// is the same on all masters and after a restart. It is a digest, because a URL may be secret.
	ID     string
	Web    *Web
	Mail   *Mail
	Syslog *saltlog.Address
}

// Kind returns how messages get to the destination, without an address, which may be secret.
func (d *Destination) Kind() string {
	switch {
	case d.Web != nil:
		return "web hook (" + string(d.Web.Form) + ")"
	case d.Mail != nil:
		return "mail"
	}
	return "syslog"
}

// identify sets the ID of the destination. A mail server may be replaced by another one, and the files
// of secrets may get other contents: the destination is still the same.
func (d *Destination) identify(rule string) {
	parts := []string{rule}
	switch {
	case d.Web != nil && d.Web.URL.text != nil:
		parts = append(parts, "url", *d.Web.URL.text)
	case d.Web != nil:
		parts = append(parts, "url_file", d.Web.URL.file)
	case d.Mail != nil:
		parts = append(append(parts, "mail"), slices.Sorted(slices.Values(d.Mail.To))...)
	case d.Syslog != nil:
		parts = append(append(parts, "syslog", d.Syslog.Address, strconv.Itoa(d.Syslog.Facility)), d.Syslog.Networks...)
	}

	sum := sha256.Sum256(fmt.Appendf(nil, "%q", parts))
	d.ID = hex.EncodeToString(sum[:16])
}

// Form is the form of a web hook's body.
type Form string

// The forms.
const (
	Generic Form = "generic" // a JSON object with a field for each fact
	Slack   Form = "slack"   // for an incoming web hook of Slack, Mattermost or Rocket.Chat
	Teams   Form = "teams"   // for a workflow of Microsoft Teams that posts what a web hook gets
)

// Web is a web hook.
type Web struct {
	URL   Secret
	Form  Form
	Token Secret // sent as "Authorization: Bearer"; unset: none
	CA    string // file with certificates of authorities, in PEM; "": the system's
}

// TLS says how mail is encrypted.
type TLS string

// The values of TLS.
const (
	StartTLS TLS = "starttls" // the server must offer STARTTLS
	Direct   TLS = "tls"      // TLS from the first byte
	Clear    TLS = "none"     // no encryption, and therefore no password
)

// Mail is a mail server and the addresses to which it passes messages.
type Mail struct {
	Server   string // host:port
	TLS      TLS
	From     string
	To       []string
	User     string // "": no log-in
	Password Secret
	CA       string // as in Web
}

// Secret is a text that must not get into logs, events and answers. It has no String method, and
// its fields are not exported, so that package fmt prints the address of the text only.
type Secret struct {
	text *string
	file string
}

// maxSecret bounds the file of a secret, in bytes.
const maxSecret = 8 << 10

var errEmptySecret = errors.New("it is empty")

// NewSecret returns a Secret that stands in the option itself.
func NewSecret(text string) Secret { return Secret{text: &text} }

// FileSecret returns a Secret that stands in a file.
func FileSecret(path string) Secret { return Secret{file: path} }

// IsSet reports whether there is a secret.
func (s Secret) IsSet() bool { return s.text != nil || s.file != "" }

// Read returns the secret. It reads a file each time, so that a new secret counts at once. The
// error names the file, and not its content.
func (s Secret) Read() (string, error) {
	if s.text != nil {
		return *s.text, nil
	}
	content, _, err := durable.ReadFile(s.file, maxSecret, durable.Follow)
	if err != nil {
		return "", fmt.Errorf("read a secret: %w", err)
	}
	text := strings.TrimSpace(string(content))
	if text == "" {
		return "", fmt.Errorf("read a secret: %s: %w", s.file, errEmptySecret)
	}
	return text, nil
}
