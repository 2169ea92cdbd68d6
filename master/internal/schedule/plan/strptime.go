package plan

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// strptimeParts maps the directives that once_fmt may contain to regular expressions. The
// directives are those of Python's strptime, and the expressions try alternatives in the same order
// as Python's (Lib/_strptime.py TimeRE).
var strptimeParts = map[byte]string{
	'Y': `(?P<Y>\d\d\d\d)`,
	'y': `(?P<y>\d\d)`,
	'm': `(?P<m>1[0-2]|0[1-9]|[1-9])`,
	'd': `(?P<d>3[0-1]|[1-2]\d|0[1-9]|[1-9]| [1-9])`,
	'H': `(?P<H>2[0-3]|[0-1]\d|\d)`,
	'I': `(?P<I>1[0-2]|0[1-9]|[1-9]| [1-9])`,
	'M': `(?P<M>[0-5]\d|\d)`,
	'S': `(?P<S>6[0-1]|[0-5]\d|\d)`,
	'p': `(?P<p>am|pm)`,
	'B': `(?P<B>january|february|march|april|may|june|july|august|september|october|november|december)`,
	'b': `(?P<b>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)`,
	'A': `(?P<A>monday|tuesday|wednesday|thursday|friday|saturday|sunday)`,
	'a': `(?P<a>mon|tue|wed|thu|fri|sat|sun)`,
	'%': `%`,
}

// onceFormat is the default of once_fmt.
const onceFormat = "%Y-%m-%dT%H:%M:%S"

// strptime parses a time in a format of Python's strptime. Parts that the format lacks are taken
// from 1900-01-01, midnight.
func strptime(text, format string) (t time.Time, err error) {
	if len(text) > maxMoment || len(format) > maxMoment {
		return t, fmt.Errorf("more than %d bytes", maxMoment)
	}

	expression, err := strptimeExpression(format)
	if err != nil {
		return t, err
	}

	m := expression.FindStringSubmatch(text)
	if m == nil {
		return t, fmt.Errorf("%q is not of the form %s", text, format)
	}

	f := strptimeFields{year: 1900, month: time.January, day: 1}
	afternoon := false
	if i := expression.SubexpIndex("p"); i >= 0 {
		afternoon = strings.EqualFold(m[i], "pm")
	}

	for i, name := range expression.SubexpNames() {
		f.setField(name, m[i], afternoon)
	}

	if f.year < 1 || f.day > daysIn(f.year, f.month) || f.second > 59 {
		return t, errors.New("there is no such time")
	}

	return time.Date(f.year, f.month, f.day, f.hour, f.minute, f.second, 0, time.UTC), nil
}

// strptimeFields holds the parts of a time. If several directives set the same part, the value of
// the last directive is used.
type strptimeFields struct {
	year, day, hour, minute, second int
	month                           time.Month
}

// setField sets the part of the time that a directive has matched. afternoon is true if %p matched
// "pm" anywhere in the text.
func (f *strptimeFields) setField(directive, matched string, afternoon bool) {
	number, _ := strconv.Atoi(strings.TrimSpace(matched)) // 0 if matched is a name, which needs no number
	switch directive {
	case "Y":
		f.year = number
	case "y":
		f.year = 1900 + number
		if number < 69 {
			f.year += 100
		}
	case "m":
		f.month = time.Month(number)
	case "B", "b":
		f.month = monthNames[strings.ToLower(matched[:3])]
	case "d":
		f.day = number
	case "H":
		f.hour = number
	case "I":
		f.hour = number % 12
		if afternoon {
			f.hour += 12
		}
	case "M":
		f.minute = number
	case "S":
		f.second = number
	}
}

func strptimeExpression(format string) (*regexp.Regexp, error) {
	var b strings.Builder
	b.WriteString(`(?i)^`)
	seen := map[byte]bool{}
	for i := 0; i < len(format); i++ {
		switch c := format[i]; {
		case c == '%':
			i++
			if i == len(format) {
				return nil, errors.New("the format ends with %")
			}

			part, known := strptimeParts[format[i]]
			if !known {
				return nil, fmt.Errorf("%%%c is not possible in a format; possible are %%Y %%y %%m %%d %%H %%I %%M %%S %%p %%B %%b %%A %%a",
					format[i])
			}
			if seen[format[i]] && format[i] != '%' {
				return nil, fmt.Errorf("%%%c stands twice in the format", format[i])
			}

			seen[format[i]] = true
			b.WriteString(part)
		case strings.IndexByte(" \t\n\r\f\v", c) >= 0:
			if strings.HasSuffix(b.String(), `\s+`) {
				continue
			}
			b.WriteString(`\s+`)
		default:
			b.WriteString(regexp.QuoteMeta(format[i : i+1]))
		}
	}

	b.WriteString(`$`)
	return regexp.Compile(b.String())
}
