package saltlog

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Salt's default formats (salt/_logging/impl.py).
const (
	DefaultConsole     = "[%(levelname)-8s] %(message)s"
	DefaultFile        = "%(asctime)s,%(msecs)03d [%(name)-17s:%(lineno)-4d][%(levelname)-8s][%(process)d] %(message)s"
	DefaultConsoleDate = "%H:%M:%S"
	DefaultFileDate    = "%Y-%m-%d %H:%M:%S"
)

// Bounds of a format.
const (
	maxFormat = 4096 // bytes of a format
	maxWidth  = 1000 // characters of a field with a width or precision
)

// started is the time of the program's start, for the field relativeCreated.
var started = time.Now()

// line holds the values of one line of the log.
type line struct {
	time     time.Time
	level    slog.Level
	logger   string
	function string // function that logged, with its package
	file     string
	number   int
	message  string
	jid      string
	minion   string
}

// newLine returns the line for a record, without the record's message.
func newLine(r slog.Record, program string) *line {
	l := &line{time: r.Time, level: r.Level, logger: program}
	if r.PC == 0 {
		return l
	}
	frame, _ := runtime.CallersFrames([]uintptr{r.PC}).Next()
	l.function = frame.Function
	l.file = frame.File
	l.number = frame.Line
	l.logger = loggerOf(frame.Function, program)
	return l
}

// fieldValue returns the value of a field of Python's LogRecord, or of a field that Salt adds. The
// value is a string, an int64 or a float64, or nil for an unknown field.
func (l *line) fieldValue(name, dateFmt string) any {
	switch name {
	case "asctime":
		return strftime(l.time, dateFmt)
	case "created":
		return float64(l.time.UnixMicro()) / 1e6
	case "msecs":
		return float64(l.time.Nanosecond() / 1e6)
	case "relativeCreated":
		return float64(l.time.Sub(started).Microseconds()) / 1e3
	case "name":
		return l.logger
	case "levelname":
		return levelName(l.level)
	case "levelno":
		return pythonNumber(l.level)
	case "pathname":
		return l.file
	case "filename":
		return path.Base(l.file)
	case "module":
		return strings.TrimSuffix(path.Base(l.file), path.Ext(l.file))
	case "funcName":
		return l.function[strings.LastIndexByte(l.function, '.')+1:]
	case "lineno":
		return int64(l.number)
	case "process":
		return int64(os.Getpid())
	case "processName":
		return "MainProcess"
	case "thread":
		return int64(os.Getpid())
	case "threadName":
		return "MainThread"
	case "message", "msg":
		return l.message
	case "jid":
		return l.jid
	case "minion_id":
		return l.minion
	}

	return l.saltField(name)
}

// saltField returns the value of a field that Salt's SaltLogRecord or SaltColorLogRecord adds, or
// nil.
func (l *line) saltField(name string) any {
	level := levelName(l.level)
	switch name {
	case "bracketname":
		return fmt.Sprintf("[%-17s]", l.logger)
	case "bracketlevel":
		return fmt.Sprintf("[%-8s]", level)
	case "bracketprocess":
		return fmt.Sprintf("[%5d]", os.Getpid())
	case "colorname":
		return "\x1b[0;1;32m" + fmt.Sprintf("[%-17s]", l.logger) + colorReset
	case "colorlevel":
		return levelColor(level, true) + fmt.Sprintf("[%-8s]", level) + colorReset
	case "colorprocess":
		return "\x1b[0;1;34m" + fmt.Sprintf("[%5d]", os.Getpid()) + colorReset
	case "colormsg":
		return levelColor(level, false) + l.message + colorReset
	}

	return nil
}

// colorReset ends a coloured text (salt/utils/textformat.py).
const colorReset = "\x1b[0;0m"

// levelColor returns the colour of Salt's LOG_COLORS for the name of a level (bold is true) or for
// a message of that level (bold is false). Messages are in bold type at fewer levels.
func levelColor(level string, bold bool) string {
	color := map[string]string{
		"CRITICAL": "31",
		"ERROR":    "31",
		"WARNING":  "33",
		"INFO":     "32",
		"PROFILE":  "36",
		"DEBUG":    "36",
		"TRACE":    "35",
		"GARBAGE":  "34",
	}[level]

	if bold || level == "CRITICAL" || level == "PROFILE" {
		return "\x1b[0;1;" + color + "m"
	}

	return "\x1b[0;" + color + "m"
}

// pythonNumber returns the number that Python's logging, or Salt, has for a level.
func pythonNumber(l slog.Level) int64 {
	return map[string]int64{
		"CRITICAL": 50,
		"ERROR":    40,
		"WARNING":  30,
		"INFO":     20,
		"PROFILE":  15,
		"DEBUG":    10,
		"TRACE":    5,
		"GARBAGE":  1,
	}[levelName(l)]
}

// format is a parsed format string of Python's logging.
type format []segment

// segment is a literal text and the field after it.
type segment struct {
	literal string
	field   string // name of the field; "" for none
	verb    string // verb of package fmt that formats the field
	as      byte   // operand of the verb: s (string), d (integer) or f (float)
}

// formatLine returns the text of a line. dateFmt is a format of strftime.
func (f format) formatLine(l *line, dateFmt string) string {
	var b strings.Builder
	for _, s := range f {
		b.WriteString(s.literal)
		if s.field == "" {
			continue
		}

		v := l.fieldValue(s.field, dateFmt)
		switch s.as {
		case 's':
			fmt.Fprintf(&b, s.verb, pythonText(v))
		case 'd':
			n, whole := v.(int64)
			if !whole {
				n = int64(v.(float64))
			}
			fmt.Fprintf(&b, s.verb, n)
		case 'f':
			x, fraction := v.(float64)
			if !fraction {
				x = float64(v.(int64))
			}
			fmt.Fprintf(&b, s.verb, x)
		}
	}

	return b.String()
}

// pythonText returns a value as Python's str() shows it.
func pythonText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		text := strconv.FormatFloat(v, 'f', -1, 64)
		if !strings.Contains(text, ".") {
			text += ".0"
		}
		return text
	}
	return fmt.Sprint(v)
}

// CheckFormat returns an error if text is not a valid format string (Python's % with the fields of
// a log record).
func CheckFormat(text string) error {
	_, err := compile(text)
	return err
}

// compileOr parses text as a format. If text is empty or invalid, it parses fallback.
func compileOr(text, fallback string) format {
	if f, err := compile(text); err == nil {
		return f
	}
	f, err := compile(fallback)
	if err != nil {
		panic("saltlog: " + err.Error())
	}
	return f
}

// compile parses a format.
func compile(text string) (format, error) {
	if len(text) > maxFormat {
		return nil, fmt.Errorf("it has %d bytes, %d are possible", len(text), maxFormat)
	}

	var f format
	fields := 0
	literal := ""
	for {
		before, rest, found := strings.Cut(text, "%")
		literal += before
		if !found {
			break
		}

		if after, percent := strings.CutPrefix(rest, "%"); percent {
			literal += "%"
			text = after
			continue
		}

		s, after, err := compileField(rest)
		if err != nil {
			return nil, err
		}

		s.literal = literal
		literal = ""
		fields++
		f = append(f, s)
		text = after
	}

	if fields == 0 {
		return nil, errors.New("it names no field, as %(message)s")
	}

	if literal != "" {
		f = append(f, segment{literal: literal})
	}

	return f, nil
}

// compileField parses a field from the text after its %. It returns the field and the rest of the
// text.
func compileField(text string) (s segment, rest string, err error) {
	name, spec, closed := strings.Cut(strings.TrimPrefix(text, "("), ")")
	if text == "" || text[0] != '(' || !closed {
		return s, "", fmt.Errorf("after %% comes the name of a field, as in %%(message)s, not %.20q; write %%%% for the sign",
			text)
	}

	value := (&line{}).fieldValue(name, "")
	if value == nil {
		return s, "", fmt.Errorf("there is no field %.40q", name)
	}

	flags := spec[:len(spec)-len(strings.TrimLeft(spec, "#0- +"))]
	spec = spec[len(flags):]
	width, spec := digits(spec)
	precision := ""
	if after, has := strings.CutPrefix(spec, "."); has {
		precision, spec = digits(after)
		precision = "." + precision
	}

	spec = strings.TrimLeft(spec, "hlL")
	if spec == "" {
		return s, "", fmt.Errorf("the field %s has no end, as in %%(%s)s", name, name)
	}
	if tooWide(width) || tooWide(strings.TrimPrefix(precision, ".")) {
		return s, "", fmt.Errorf("the field %s is wider than %d characters", name, maxWidth)
	}

	s = segment{field: name}
	s.verb, s.as, err = goVerb(spec[0], value, flags, width, precision)
	if err != nil {
		return s, "", fmt.Errorf("the field %s: %w", name, err)
	}

	return s, spec[1:], nil
}

// goVerb returns the verb of package fmt for a conversion of Python's %, and the type of its
// operand.
func goVerb(conversion byte, value any, flags, width, precision string) (verb string, operand byte, err error) {
	_, isText := value.(string)
	_, isFloat := value.(float64)
	switch conversion {
	case 's':
		left := ""
		if strings.Contains(flags, "-") {
			left = "-"
		}
		return "%" + left + width + precision + "s", 's', nil
	case 'd', 'i', 'u', 'o', 'x', 'X':
		if isText || isFloat && strings.IndexByte("oxX", conversion) >= 0 {
			break
		}
		if precision != "" && strings.Contains(flags, "0") {
			return "", 0, errors.New("a whole number has no precision beside the flag 0")
		}
		if strings.Contains(flags, "#") {
			return "", 0, fmt.Errorf("it cannot be written as %q with the flag #", string(conversion))
		}

		if strings.IndexByte("diu", conversion) >= 0 {
			conversion = 'd'
		}

		return "%" + flags + width + precision + string(conversion), 'd', nil
	case 'e', 'E', 'f', 'F', 'g', 'G':
		if isText {
			break
		}
		if precision == "" {
			precision = ".6"
		}
		return "%" + flags + width + precision + string(conversion), 'f', nil
	}

	return "", 0, fmt.Errorf("it cannot be written as %q", string(conversion))
}

// digits splits a text into its leading digits (number) and the rest.
func digits(text string) (number, rest string) {
	rest = strings.TrimLeft(text, "0123456789")
	return text[:len(text)-len(rest)], rest
}

func tooWide(number string) bool {
	if number == "" {
		return false
	}
	n, err := strconv.Atoi(number)
	return err != nil || n > maxWidth
}
