package userdata

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"saltern/supervisor/setup"
)

// ErrOther means that a text is meant for another program, such as cloud-init. An error that wraps
// ErrOther names the kind of text.
var ErrOther = errors.New("not for the set-up")

// owner states which programs may be the readers of the texts in a source.
type owner int

const (
	shared    owner = iota // other programs read their texts from the same source
	oursAlone              // no other program reads this source
)

// Bounds of packed texts. Cloud-init sets no such bounds.
const (
	maxPacked = 8  // levels of gzip, base64 and MIME inside each other
	maxParts  = 64 // parts of MIME messages and archives, all together
	maxDocs   = 16 // YAML documents in one text
)

// Heads are first lines that name the kind of a text. ourHead marks our own texts in places that
// other programs read too.
const (
	ourHead     = "#saltern"
	jinjaHead   = "## template: jinja"
	configHead  = "#cloud-config"
	archiveHead = "#cloud-config-archive"
	jsonpHead   = "#cloud-config-jsonp"
)

// foreignHeads lists the first lines of texts for other programs, in lower case, with a
// description. They belong to cloud-init (cloudinit/handlers/__init__.py, INCLUSION_TYPES_MAP, and
// its earlier versions) and to cloudbase-init. If one head begins with another, the longer one
// comes first.
var foreignHeads = []struct{ head, words string }{
	{"#!", "a script"},
	{"#include-once", "cloud-init's list of addresses"},
	{"#include", "cloud-init's list of addresses"},
	{"#part-handler", "cloud-init's part handler"},
	{"#cloud-boothook", "cloud-init's boot hook"},
	{"#upstart-job", "a job of Upstart"},
	{jsonpHead, "cloud-init's JSON patch"},
	{"#ps1", "a script for PowerShell"},
	{"<powershell>", "a script for PowerShell"},
	{"<script>", "a script for Windows"},
	{"rem cmd", "a script for Windows"},
	{"<", "XML or HTML"},
}

// Parse finds answers in a text as [Places] does in user-data: as YAML, alone or below the key
// saltern of a #cloud-config, in any packing that cloud-init supports. If the text has no answers,
// the error wraps [ErrOther] and names the kind of text. If the answers are wrong, the error lists
// all faults with their lines.
func Parse(text []byte) (*setup.Answers, error) { return findAnswers(text, oursAlone) }

// IsPacked reports whether [Parse] must unpack a text: gzip, MIME, UTF-16, or text with a byte
// order mark.
func IsPacked(text []byte) bool {
	plain := toUTF8(text)
	return bytes.HasPrefix(text, []byte{0x1f, 0x8b}) || len(plain) != len(text) || isMessage(text)
}

// parseOurs parses a text from a place that only we read: there a text for another program is a
// fault.
func parseOurs(text []byte) (*setup.Answers, error) {
	a, err := Parse(text)
	if errors.Is(err, ErrOther) {
		return nil, errors.New("holds no answers for the set-up" + reason(err))
	}
	return a, err
}

// findAnswers returns the answers in a text. whose says for which programs the text may be.
func findAnswers(text []byte, whose owner) (*setup.Answers, error) {
	u := &unpacker{left: MaxGiven, whose: whose}
	u.unpack(text, "", "", 0)

	switch len(u.ours) {
	case 0:
		return nil, fmt.Errorf("%w%s", ErrOther, u.description())
	case 1:
		return u.ours[0].answers, u.ours[0].err
	}
	return nil, fmt.Errorf("%s and %s both hold answers: keep one of them", u.ours[0].where, u.ours[1].where)
}

// unpacker unpacks a text until it finds answers or recognises the kind of text.
type unpacker struct {
	whose owner
	left  int // budget for unpacking, in bytes: what remains for all parts
	parts int // number of parts of MIME messages and archives so far

	packings []string // names of the packings so far: "gzip", "base64", "MIME"
	ours     []section
	others   []string // descriptions of the parts for other programs
}

// section is a part of a text that contains answers, or a fault in place of them.
type section struct {
	where   string // "part 2"; empty: the whole text
	answers *setup.Answers
	err     error
}

// noteForeign records a part of the text that is for another program.
func (u *unpacker) noteForeign(where, format string, args ...any) {
	words := fmt.Sprintf(format, args...)
	if where != "" {
		words = where + " is " + words
	}
	u.others = append(u.others, words)
}

// noteFault records a fault in a part that is for the set-up.
func (u *unpacker) noteFault(where string, err error) {
	if where != "" {
		err = fmt.Errorf("%s: %w", where, err)
	}
	u.ours = append(u.ours, section{where: where, err: err})
}

// description returns a description of a text without answers: " (gzip, MIME, 2 parts): part 1 is a
// script, …".
func (u *unpacker) description() string {
	var b strings.Builder
	if len(u.packings) > 0 {
		packed := slices.Clone(u.packings)
		if u.parts > 0 {
			packed = append(packed, fmt.Sprintf("%d parts", u.parts))
		}
		fmt.Fprintf(&b, " (%s)", strings.Join(packed, ", "))
	}

	const shown = 4
	others := u.others
	if len(others) > shown {
		others = append(slices.Clone(others[:shown]), "and so on")
	}

	if len(others) > 0 {
		b.WriteString(": " + strings.Join(others, ", "))
	}

	return b.String()
}

// packed records the name of a packing, once.
func (u *unpacker) packed(name string) {
	if !slices.Contains(u.packings, name) {
		u.packings = append(u.packings, name)
	}
}

// unpack looks for answers in a text. kind is its MIME type, or "" if that is not known. where
// names the part, as in section. depth is the number of packings around the text.
func (u *unpacker) unpack(text []byte, kind, where string, depth int) {
	if depth > maxPacked {
		u.noteForeign(where, "packed more than %d times", maxPacked)
		return
	}

	if bytes.HasPrefix(text, []byte{0x1f, 0x8b}) {
		u.packed("gzip")
		plain, err := u.gunzip(text)
		if err != nil {
			u.unreadable(where, plain, fmt.Errorf("unpack gzip: %w", err))
			return
		}

		u.unpack(plain, "", where, depth+1)
		return
	}

	text = toUTF8(text)
	head := firstLine(text)
	switch {
	case head == "":
		u.noteForeign(where, "empty")
	case strings.HasPrefix(kind, "multipart/"), !isTyped(kind) && isMessage(text):
		u.message(text, where, depth)
	case kind == "text/cloud-config":
		u.document(text, where, true)
	case kind == "text/cloud-config-archive", !isTyped(kind) && hasHead(head, archiveHead):
		u.archive(text, where, depth)
	case kind == "text/jinja2", !isTyped(kind):
		u.byHead(text, head, where, depth)
	default:
		u.noteForeign(where, "%.60s", kind)
	}
}

// byHead looks for answers in a text whose first line, head, shows its kind.
func (u *unpacker) byHead(text []byte, head, where string, depth int) {
	if hasHead(head, ourHead) {
		u.document(text, where, false)
		return
	}

	below := head
	if hasHead(head, jinjaHead) {
		_, rest, _ := bytes.Cut(bytes.TrimLeft(text, " \t\r\n"), []byte("\n"))
		below = firstLine(rest)
	}

	for _, f := range foreignHeads {
		if hasHead(below, f.head) {
			u.noteForeign(where, "%s", f.words)
			return
		}
	}

	if hasHead(below, configHead) {
		u.document(text, where, true)
		return
	}

	if plain, ok := fromBase64(string(text)); ok && len(plain) > 0 {
		u.packed("base64")
		u.unpack(plain, "", where, depth+1)
		return
	}

	u.document(text, where, false)
}

// isTyped reports whether a MIME type alone shows the kind of a part. For the other types
// cloud-init looks at the beginning of the part (user_data.py, TYPE_NEEDED).
func isTyped(kind string) bool {
	switch kind {
	case "", "text/plain", "text/x-not-multipart", "text/x-shellscript", "application/octet-stream":
		return false
	}
	return !strings.Contains(kind, "gzip") && !strings.Contains(kind, "compress")
}

// hasHead reports whether a line begins with head, ignoring case, as cloud-init does.
func hasHead(line, head string) bool {
	return len(line) >= len(head) && strings.EqualFold(line[:len(head)], head)
}

// firstLine returns the first line that is not blank.
func firstLine(text []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimLeft(text, " \t\r\n"), []byte("\n"))
	return strings.TrimSpace(string(line))
}

// gunzip unpacks a text within the bound u.left.
func (u *unpacker) gunzip(text []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(r, int64(u.left)+1))
	if len(plain) > u.left {
		return plain[:u.left], fmt.Errorf("it has more than %d bytes", MaxGiven)
	}
	u.left -= len(plain)
	return plain, err
}

// unreadable records a part that cannot be read completely. If only the set-up reads this source,
// or if the readable beginning has answers, the part is recorded as a fault in the answers.
// Otherwise the part is recorded as text for another program.
func (u *unpacker) unreadable(where string, text []byte, err error) {
	if u.whose == oursAlone || ourKey.Match(text) {
		u.noteFault(where, err)
		return
	}
	u.noteForeign(where, "unreadable (%v)", err)
}

// document looks for answers in YAML. config reports whether the text is a #cloud-config, of which
// only the key saltern is for the set-up.
func (u *unpacker) document(text []byte, where string, config bool) {
	if config && !bytes.Contains(text, []byte("saltern")) {
		u.noteForeign(where, "a #cloud-config without the key saltern")
		return
	}

	marked := hasHead(firstLine(text), ourHead)
	docs, err := documents(text)
	if err != nil {
		switch {
		case marked, ourKey.Match(text), !config && (ourLine.Match(text) || u.whose == oursAlone):
			u.noteFault(where, err)
		case config:
			u.noteForeign(where, "a #cloud-config that is not YAML")
		default:
			u.noteForeign(where, "a text of unknown kind")
		}

		return
	}

	answered, words, err := u.ourSection(docs, config, marked)
	switch {
	case err != nil:
		u.noteFault(where, err)
		return
	case answered == nil:
		u.noteForeign(where, "%s", words)
		return
	case len(text) > maxText && answered == docs[0]:
		u.noteFault(where, fmt.Errorf("is larger than %d bytes", maxText))
		return
	case len(docs) > 1:
		u.noteFault(where, fmt.Errorf("line %d: a second YAML document begins; answers are one", docs[1].Line))
		return
	}

	if hasHead(firstLine(text), jinjaHead) {
		if n := templated(answered, 0); n != nil {
			u.noteFault(where,
				fmt.Errorf("line %d: %.60q is a template, and templates are not filled in here", n.Line, n.Value))
			return
		}
	}

	answers, err := decode(answered)
	if err != nil {
		u.noteFault(where, err)
		return
	}

	u.ours = append(u.ours, section{where: where, answers: answers})
}

// ourKey matches the line with the key saltern, below which a document for other programs has our
// answers. ourLine matches a line of a document that has only answers.
var (
	ourKey  = regexp.MustCompile(`(?m)^saltern[ \t]*:`)
	ourLine = regexp.MustCompile(`(?m)^(mode|join|cluster_id|node)[ \t]*:`)
)

// ourSection returns the mapping with answers. If there is none, it returns nil and a description
// of the text. marked reports whether the text begins with ourHead.
func (u *unpacker) ourSection(docs []*yaml.Node, config, marked bool) (answered *yaml.Node, words string, err error) {
	for _, doc := range docs {
		if doc.Kind != yaml.MappingNode {
			continue
		}

		if part := childNode(doc, "saltern"); part != nil {
			if part.Kind != yaml.MappingNode && part.ShortTag() != "!!null" {
				return nil, "", fmt.Errorf("line %d: saltern: %w", part.Line, errNoMapping)
			}
			return part, "", nil
		}

		if !config && (marked || answersLike(doc)) {
			return doc, "", nil
		}
	}

	switch {
	case config:
		return nil, "a #cloud-config without the key saltern", nil
	case len(docs) == 0:
		return nil, "empty", nil
	case !marked && u.whose == shared:
		return nil, "a text without answers", nil
	case docs[0].Kind != yaml.MappingNode:
		return nil, "", errNoMapping
	}

	return docs[0], "", nil // decoding the document reports its faults
}

// answersLike reports whether a mapping without our head looks like answers: it has a key of the
// answers that no other program uses. netplan and Butane use the keys network and storage.
func answersLike(doc *yaml.Node) bool {
	for i := 0; i+1 < len(doc.Content); i += 2 {
		key := doc.Content[i].Value
		if key == "network" || key == "storage" {
			continue
		}
		if slices.Contains(answerGroups(), key) {
			return true
		}
	}
	return false
}

// answerGroups returns the top-level keys of answers.
func answerGroups() []string {
	keys := setup.AnswerKeys()
	for i, k := range keys {
		keys[i], _, _ = strings.Cut(k, ".")
	}
	return keys
}

// documents parses all YAML documents of a text and omits empty documents.
func documents(text []byte) (docs []*yaml.Node, err error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for range maxDocs {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, err
		}

		if len(doc.Content) > 0 && doc.Content[0].ShortTag() != "!!null" {
			docs = append(docs, target(doc.Content[0]))
		}
	}

	return nil, fmt.Errorf("holds more than %d YAML documents", maxDocs)
}

func childNode(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return target(n.Content[i+1])
		}
	}
	return nil
}

// templated returns a value that contains a template, or nil.
func templated(n *yaml.Node, depth int) *yaml.Node {
	n = target(n)
	if n.Kind == yaml.ScalarNode && (strings.Contains(n.Value, "{{") || strings.Contains(n.Value, "{%")) {
		return n
	}
	if depth > maxDepth {
		return nil
	}
	for _, c := range n.Content {
		if found := templated(c, depth+1); found != nil {
			return found
		}
	}
	return nil
}

// toUTF8 removes a byte order mark and converts UTF-16 to UTF-8.
func toUTF8(text []byte) []byte {
	little := bytes.HasPrefix(text, []byte{0xff, 0xfe})
	big := bytes.HasPrefix(text, []byte{0xfe, 0xff})
	if !little && !big {
		return bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	}

	units := make([]uint16, 0, len(text)/2)
	for i := 2; i+1 < len(text); i += 2 {
		low, high := text[i], text[i+1]
		if big {
			low, high = high, low
		}
		units = append(units, uint16(low)|uint16(high)<<8)
	}

	return []byte(string(utf16.Decode(units)))
}

// fromBase64 decodes a text that consists of base64 only, with or without line breaks and padding.
// It returns false for any other text.
func fromBase64(text string) ([]byte, bool) {
	compact := strings.Join(strings.Fields(strings.TrimPrefix(text, "\ufeff")), "")
	compact = strings.TrimRight(compact, "=")
	decoded, err := base64.RawStdEncoding.Strict().DecodeString(compact)
	if err != nil || !utf8.ValidString(compact) {
		return nil, false
	}
	return decoded, true
}
