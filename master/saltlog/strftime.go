package saltlog

import (
	"fmt"
	"strings"
	"time"
)

// strftime formats a time by the rules of C's strftime in the locale C. It does not replace unknown
// directives.
func strftime(t time.Time, format string) string {
	if len(format) > maxFormat {
		format = format[:maxFormat]
	}

	var b strings.Builder
	for {
		before, rest, found := strings.Cut(format, "%")
		b.WriteString(before)
		if !found {
			return b.String()
		}

		plain := strings.TrimLeft(rest, "-_^")
		flags := rest[:len(rest)-len(plain)]
		if plain == "" {
			return b.String() + "%" + flags
		}

		text := directive(t, plain[0])
		if strings.HasPrefix(text, "%") && plain[0] != '%' {
			text = "%" + flags + text[1:]
		} else {
			text = flagged(text, flags, plain[0])
		}

		b.WriteString(text)
		format = plain[1:]
	}
}

// flagged applies the flags of the GNU C library to the text of a directive: - removes the padding
// of a number, _ pads with blanks, ^ converts to capitals.
func flagged(text, flags string, d byte) string {
	if strings.Contains(flags, "^") {
		text = strings.ToUpper(text)
	}
	fills := strings.LastIndexAny(flags, "-_")
	if fills < 0 || strings.IndexByte("CdegHIjklmMSuUVwWy", d) < 0 {
		return text
	}
	last := len(text) - 1
	number := strings.TrimLeft(text[:last], "0 ") + text[last:]
	if flags[fills] == '-' {
		return number
	}
	return strings.Repeat(" ", len(text)-len(number)) + number
}

// layouts maps directives of strftime to layouts of Go's package time.
var layouts = map[byte]string{
	'a': "Mon",
	'A': "Monday",
	'b': "Jan",
	'B': "January",
	'c': "Mon Jan _2 15:04:05 2006",
	'd': "02",
	'D': "01/02/06",
	'e': "_2",
	'F': "2006-01-02",
	'h': "Jan",
	'H': "15",
	'I': "03",
	'm': "01",
	'M': "04",
	'p': "PM",
	'P': "pm",
	'r': "03:04:05 PM",
	'R': "15:04",
	'S': "05",
	'T': "15:04:05",
	'x': "01/02/06",
	'X': "15:04:05",
	'y': "06",
	'Y': "2006",
	'z': "-0700",
	'Z': "MST",
}

func directive(t time.Time, d byte) string {
	if layout := layouts[d]; layout != "" {
		return t.Format(layout)
	}

	weekday := int(t.Weekday())
	isoYear, isoWeek := t.ISOWeek()
	switch d {
	case '%':
		return "%"
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case 'C':
		return fmt.Sprintf("%02d", t.Year()/100)
	case 'g':
		return fmt.Sprintf("%02d", isoYear%100)
	case 'G':
		return fmt.Sprint(isoYear)
	case 'j':
		return fmt.Sprintf("%03d", t.YearDay())
	case 'k':
		return fmt.Sprintf("%2d", t.Hour())
	case 'l':
		return fmt.Sprintf("%2d", (t.Hour()+11)%12+1)
	case 's':
		return fmt.Sprint(t.Unix())
	case 'u':
		return fmt.Sprint((weekday+6)%7 + 1)
	case 'U':
		return fmt.Sprintf("%02d", (t.YearDay()+6-weekday)/7)
	case 'V':
		return fmt.Sprintf("%02d", isoWeek)
	case 'w':
		return fmt.Sprint(weekday)
	case 'W':
		return fmt.Sprintf("%02d", (t.YearDay()+6-(weekday+6)%7)/7)
	}

	return "%" + string([]byte{d})
}
