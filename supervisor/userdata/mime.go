package userdata

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/textproto"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxHeader is how many bytes from the beginning cloud-init searches for MIME-Version
// (user_data.py, convert_string).
const maxHeader = 4096

// messageHead matches the first line of a MIME message as people and tools write it. It must not
// match a line of answers, which looks similar (for example "mode: form").
var messageHead = regexp.MustCompile(`(?i)^(from |(mime-version|content-[a-z-]+|number-attachments|from|to|subject|date|message-id|x-[a-z-]+)[ \t]*:)`)

// isMessage reports whether a text is a MIME message: it begins with a header line, and has
// MIME-Version or a multipart type before its first empty line.
func isMessage(text []byte) bool {
	text = bytes.TrimLeft(text, " \t\r\n")
	if !messageHead.Match(text) {
		return false
	}
	header := bytes.ReplaceAll(text[:min(len(text), maxHeader)], []byte("\r\n"), []byte("\n"))
	header, _, _ = bytes.Cut(header, []byte("\n\n"))
	header = append([]byte("\n"), bytes.ToLower(header)...)
	return bytes.Contains(header, []byte("\nmime-version:")) || bytes.Contains(header, []byte("\ncontent-type:"))
}

// message looks for answers in a MIME message.
func (u *unpacker) message(text []byte, where string, depth int) {
	u.packed("MIME")
	text = bytes.TrimLeft(text, " \t\r\n")
	if bytes.HasPrefix(text, []byte("From ")) { // the first line of a mailbox is no header
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}

	header, body, err := splitMessage(text)
	if err != nil {
		u.unreadable(where, text, err)
		return
	}

	kind, params, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil && header.Get("Content-Type") != "" {
		u.unreadable(where, text, fmt.Errorf("its Content-Type %.60q cannot be read", header.Get("Content-Type")))
		return
	}
	if !strings.HasPrefix(kind, "multipart/") {
		u.unpackPart(header, kind, bytes.NewReader(body), where, depth)
		return
	}

	u.multipart(body, params["boundary"], where, depth)
}

// splitMessage returns the header and the body of a message.
func splitMessage(text []byte) (textproto.MIMEHeader, []byte, error) {
	end := regexp.MustCompile(`\r?\n\r?\n`).FindIndex(text)
	if end == nil {
		return nil, nil, errors.New("a MIME message without a body")
	}
	header, err := readHeader(text[:end[0]])
	return header, text[end[1]:], err
}

func readHeader(text []byte) (textproto.MIMEHeader, error) {
	var h textproto.MIMEHeader
	part, err := multipart.NewReader(io.MultiReader(strings.NewReader("--x\r\n"), bytes.NewReader(text),
		strings.NewReader("\r\n\r\n--x--\r\n")),
		"x").NextRawPart()
	if err == nil {
		h = part.Header
	}
	if err != nil {
		err = fmt.Errorf("read the header of a MIME message: %w", err)
	}
	return h, err
}

// multipart looks for answers in the parts of a message, in their order.
func (u *unpacker) multipart(body []byte, boundary, where string, depth int) {
	if boundary == "" {
		u.unreadable(where, body, errors.New("a MIME message without a boundary"))
		return
	}

	r := multipart.NewReader(bytes.NewReader(body), boundary)
	for {
		part, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			u.unreadable(where, body, fmt.Errorf("read a MIME message: %w", err))
			return
		}

		name, ok := u.nextPart()
		if !ok {
			return
		}

		kind, params, err := mime.ParseMediaType(part.Header.Get("Content-Type"))
		if err != nil {
			kind = "" // cloud-init treats the part as text/plain
		}

		if strings.HasPrefix(kind, "multipart/") {
			u.parts-- // a part that consists of parts does not count
			inner, err := io.ReadAll(part)
			if depth >= maxPacked || err != nil {
				u.unreadable(name, inner, errors.New("its parts are nested too deeply, or cut off"))
				continue
			}

			u.multipart(inner, params["boundary"], where, depth+1)
			continue
		}

		u.unpackPart(part.Header, kind, part, name, depth)
	}
}

// nextPart counts a part and returns its name. It returns false if there are too many parts.
func (u *unpacker) nextPart() (name string, ok bool) {
	if u.parts >= maxParts {
		if u.parts == maxParts {
			u.parts++
			u.others = slices.Insert(u.others, 0,
				fmt.Sprintf("with more than %d parts, of which the first were looked at", maxParts))
		}
		return "", false
	}
	u.parts++
	return fmt.Sprintf("part %d", u.parts), true
}

// unpackPart decodes one part and looks for answers in it.
func (u *unpacker) unpackPart(header textproto.MIMEHeader, kind string, body io.Reader, name string, depth int) {
	encoding := strings.ToLower(strings.TrimSpace(header.Get("Content-Transfer-Encoding")))
	switch encoding {
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, &withoutBlanks{body})
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	case "", "7bit", "8bit", "binary":
	default:
		u.unreadable(name, nil, fmt.Errorf("its Content-Transfer-Encoding %.40q is not known", encoding))
		return
	}

	text, err := io.ReadAll(io.LimitReader(body, int64(u.left)+1))
	switch {
	case len(text) > u.left:
		u.unreadable(name, text, fmt.Errorf("it has more than %d bytes", MaxGiven))
		return
	case err != nil:
		u.unreadable(name, text, fmt.Errorf("cut off, or not %s: %w", encoding, err))
		return
	}

	u.left -= len(text)
	u.unpack(text, strings.ToLower(kind), name, depth+1)
}

// withoutBlanks is a reader that removes blanks and line ends, which base64 may contain.
type withoutBlanks struct{ r io.Reader }

// Read implements [io.Reader].
func (w *withoutBlanks) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	kept := 0
	for _, c := range p[:n] {
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			p[kept] = c
			kept++
		}
	}
	return kept, err
}

// archive looks for answers in a #cloud-config-archive: a YAML list of texts, or of maps with type
// and content (user_data.py, _explode_archive).
func (u *unpacker) archive(text []byte, where string, depth int) {
	u.packed("#cloud-config-archive")
	docs, err := documents(text)
	if err != nil || len(docs) == 0 || docs[0].Kind != yaml.SequenceNode {
		u.unreadable(where, text, errors.New("a #cloud-config-archive that is no list"))
		return
	}

	for _, entry := range docs[0].Content {
		name, ok := u.nextPart()
		if !ok {
			return
		}

		entry = target(entry)
		content, kind := entry, ""
		if entry.Kind == yaml.MappingNode {
			content = childNode(entry, "content")
			if t := childNode(entry, "type"); t != nil {
				kind = strings.ToLower(t.Value)
			}
		}

		if content == nil || content.Kind != yaml.ScalarNode {
			u.noteForeign(name, "empty")
			continue
		}

		inner := []byte(content.Value)
		if content.ShortTag() == "!!binary" {
			inner, ok = fromBase64(content.Value)
			if !ok {
				u.unreadable(name, nil, errors.New("not base64"))
				continue
			}
		}

		if len(inner) > u.left {
			u.unreadable(name, inner, fmt.Errorf("it has more than %d bytes", MaxGiven))
			return
		}

		u.left -= len(inner)
		if kind == "" && !hasAnyHead(firstLine(inner)) {
			kind = "text/cloud-config" // cloud-init's ARCHIVE_UNDEF_TYPE
		}

		u.unpack(inner, kind, name, depth+1)
	}
}

// hasAnyHead reports whether a first line is one of the heads that show the kind of a text.
func hasAnyHead(line string) bool {
	for _, head := range []string{ourHead, jinjaHead, configHead} {
		if hasHead(line, head) {
			return true
		}
	}
	for _, f := range foreignHeads {
		if hasHead(line, f.head) {
			return true
		}
	}
	return false
}
