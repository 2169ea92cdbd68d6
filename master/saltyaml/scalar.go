package saltyaml

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// maxDigits is the number of digits of the longest integer that Python converts from text.
const maxDigits = 4300

// plainTag returns the tag of an untagged plain scalar. It tries the YAML 1.1 patterns in the order
// of PyYAML's resolver.py: bool, float, int, merge, null, timestamp, value. Salt converts
// timestamps to text, so plainTag has no pattern for them.
func plainTag(s string) string {
	if s == "" {
		return tagNull
	}

	switch s[0] {
	case 'y', 'Y', 'n', 'N', 't', 'T', 'f', 'F', 'o', 'O':
		switch s {
		case "yes", "Yes", "YES", "no", "No", "NO", "true", "True", "TRUE",
			"false", "False", "FALSE", "on", "On", "ON", "off", "Off", "OFF":
			return tagBool
		case "null", "Null", "NULL":
			return tagNull
		}
	case '~':
		if s == "~" {
			return tagNull
		}
	case '<':
		if s == "<<" {
			return tagMerge
		}
	case '=':
		if s == "=" {
			return tagValue
		}
	case '-', '+', '.', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		if isFloat(s) {
			return tagFloat
		}
		if isInt(s) {
			return tagInt
		}
	}

	return tagStr
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// prefixLen returns the length of the prefix of s whose bytes all satisfy ok.
func prefixLen(s string, ok func(byte) bool) int {
	i := 0
	for i < len(s) && ok(s[i]) {
		i++
	}
	return i
}

func decimalOrUnderscore(c byte) bool { return isDigit(c) || c == '_' }

// exponent reports whether s is empty, or is an exponent with its obligatory sign and nothing more.
func exponent(s string) bool {
	if s == "" {
		return true
	}
	if len(s) < 3 || s[0] != 'e' && s[0] != 'E' || s[1] != '+' && s[1] != '-' {
		return false
	}
	return prefixLen(s[2:], isDigit) == len(s)-2
}

// sixties removes the longest prefix (:[0-5]?[0-9])+ from s. It returns the rest and the number of
// repetitions.
func sixties(s string) (rest string, n int) {
	for len(s) > 1 && s[0] == ':' && isDigit(s[1]) {
		switch {
		case len(s) > 2 && isDigit(s[2]) && s[1] <= '5':
			s = s[3:]
		default:
			s = s[2:]
		}
		n++
	}
	return s, n
}

func unsigned(s string) string {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		return s[1:]
	}
	return s
}

func isFloat(s string) bool {
	switch s {
	case ".nan", ".NaN", ".NAN":
		return true
	}

	u := unsigned(s)
	switch u {
	case ".inf", ".Inf", ".INF":
		return true
	}

	if s[0] == '.' { // a number that begins with a point has no sign
		if len(s) < 2 || !isDigit(s[1]) {
			return false
		}
		return exponent(s[1+prefixLen(s[1:], decimalOrUnderscore):])
	}

	if u == "" || !isDigit(u[0]) {
		return false
	}

	u = u[prefixLen(u, decimalOrUnderscore):]
	if rest, ok := strings.CutPrefix(u, "."); ok {
		return exponent(rest[prefixLen(rest, decimalOrUnderscore):])
	}

	rest, n := sixties(u)
	if n == 0 || rest == "" || rest[0] != '.' {
		return false
	}

	return prefixLen(rest[1:], decimalOrUnderscore) == len(rest)-1
}

func isInt(s string) bool {
	u := unsigned(s)
	if u == "" || !isDigit(u[0]) {
		return false
	}

	all := func(t string, ok func(byte) bool) bool { return t != "" && prefixLen(t, ok) == len(t) }
	if u[0] == '0' {
		if u == "0" {
			return true
		}

		if t, ok := strings.CutPrefix(u, "0b"); ok {
			return all(t, func(c byte) bool { return c == '0' || c == '1' || c == '_' })
		}

		if t, ok := strings.CutPrefix(u, "0x"); ok {
			return all(t, func(c byte) bool {
				return decimalOrUnderscore(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
			})
		}

		return all(u[1:], func(c byte) bool { return c >= '0' && c <= '7' || c == '_' })
	}

	u = u[prefixLen(u, decimalOrUnderscore):]
	if u == "" {
		return true
	}

	rest, n := sixties(u)
	return n > 0 && rest == ""
}

// scalarValue returns the value of a scalar text with one of the tags of scalars.
func scalarValue(tag, text string) (any, error) {
	switch tag {
	case tagNull:
		return nil, nil
	case tagBool:
		switch strings.ToLower(text) {
		case "yes", "true", "on":
			return true, nil
		case "no", "false", "off":
			return false, nil
		}
		return nil, fmt.Errorf("%q is not a boolean", text)
	case tagInt:
		return intValue(text)
	case tagFloat:
		return floatValue(text)
	case tagBinary:
		return binaryValue(text)
	}

	return text, nil
}

// intValue implements PyYAML's construct_yaml_int for text from which Salt has removed leading
// zeros. So 0644 is 644, but -0644 is octal.
func intValue(text string) (any, error) {
	if len(text) > maxDigits {
		return nil, fmt.Errorf("integer of %d digits, at most %d", len(text), maxDigits)
	}

	s := text
	if s != "0" && strings.HasPrefix(s, "0") && !strings.HasPrefix(s, "0b") && !strings.HasPrefix(s, "0x") {
		if s = strings.TrimLeft(s, "0"); s == "" {
			s = "0"
		}
	}

	s = strings.ReplaceAll(s, "_", "")
	neg := strings.HasPrefix(s, "-")
	s = unsigned(s)
	var (
		n   = new(big.Int)
		err error
	)

	switch {
	case s == "":
		err = errNumber
	case s == "0":
	case strings.HasPrefix(s, "0b"):
		err = setInt(n, s[2:], 2)
	case strings.HasPrefix(s, "0x"):
		err = setInt(n, s[2:], 16)
	case s[0] == '0':
		err = setInt(n, strings.TrimPrefix(s, "0o"), 8)
	case strings.Contains(s, ":"):
		sixty, part := big.NewInt(60), new(big.Int)
		for p := range strings.SplitSeq(s, ":") {
			if err = setInt(part, p, 10); err != nil {
				break
			}
			n.Mul(n, sixty).Add(n, part)
		}
	default:
		if v, perr := strconv.ParseInt(s, 10, 64); perr == nil && isDigit(s[0]) {
			if neg {
				v = -v
			}
			return v, nil
		}
		err = setInt(n, s, 10)
	}

	if err != nil {
		return nil, fmt.Errorf("%q is not an integer", text)
	}

	if neg {
		n.Neg(n)
	}

	switch {
	case n.IsInt64():
		return n.Int64(), nil
	case n.IsUint64():
		return n.Uint64(), nil
	}

	return n, nil
}

var errNumber = errors.New("not a number")

// setInt sets n by the rules of Python's int(s, base), for text without underscores and prefixes.
func setInt(n *big.Int, s string, base int) error {
	s = strings.TrimSpace(s)
	if _, ok := n.SetString(s, base); !ok {
		return errNumber
	}
	return nil
}

func floatValue(text string) (any, error) {
	s := strings.ToLower(strings.ReplaceAll(text, "_", ""))
	sign := 1.0
	if strings.HasPrefix(s, "-") {
		sign = -1
	}

	s = unsigned(s)
	switch {
	case s == ".inf":
		return sign * math.Inf(1), nil
	case s == ".nan":
		return math.NaN(), nil
	}

	var sum float64
	for p := range strings.SplitSeq(s, ":") {
		p = strings.TrimSpace(p)
		f, err := strconv.ParseFloat(p, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) || strings.ContainsAny(p, "xp") {
			return nil, fmt.Errorf("%q is not a number", text)
		}
		sum = sum*60 + f
	}

	return sign * sum, nil
}

// binaryValue decodes base64 by the rules of Python's base64.decodebytes, which skips bytes outside
// the alphabet. Like Salt it adds missing padding.
func binaryValue(text string) (any, error) {
	clean := make([]byte, 0, len(text))
	pads := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c >= 0x80:
			return nil, errors.New("base64 data is not ASCII")
		case c == '=':
			if len(clean)%4 >= 2 {
				pads++
				if len(clean)%4+pads >= 4 {
					i = len(text) // four characters with padding end the data
				}
			}
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', isDigit(c), c == '+', c == '/':
			clean = append(clean, c)
			pads = 0
		}
	}

	if missing := len(text) % 4; missing != 0 {
		pads += 4 - missing
	}

	if r := len(clean) % 4; r == 1 || r > 1 && pads+r < 4 {
		return nil, errors.New("base64 data is incomplete")
	}

	out := make([]byte, base64.RawStdEncoding.DecodedLen(len(clean)))
	n, err := base64.RawStdEncoding.Decode(out, clean)
	if err != nil {
		return nil, fmt.Errorf("base64 data: %w", err)
	}

	return out[:n], nil
}
