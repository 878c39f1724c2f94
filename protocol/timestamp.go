package protocol

import "github.com/snakream/snakream/internal/base"

const (
	secondsPerDay = 24 * 60 * 60

	// maxTime is the last instant that RFC 3339 can write, 9999-12-31T23:59:59.999Z.
	maxTime base.Millis = 253_402_300_799_999
)

// parseTime reads an RFC 3339 timestamp: T and Z in either case, any offset,
// fractional seconds, of which milliseconds count. Whatever lies before the second
// millisecond of 1970 becomes the first one, since zero says «no time» elsewhere;
// both are long past.
func parseTime(b []byte) (base.Millis, bool) {
	// 2026-01-31T12:00:00 comes first, then a fraction, then the zone.
	const fixed = len("2006-01-02T15:04:05")
	if len(b) <= fixed || b[4] != '-' || b[7] != '-' || toLower(b[10]) != 't' || b[13] != ':' || b[16] != ':' {
		return 0, false
	}
	year, month, day := twoDigits(b)*100+twoDigits(b[2:]), twoDigits(b[5:]), twoDigits(b[8:])
	hour, minute, second := twoDigits(b[11:]), twoDigits(b[14:]), twoDigits(b[17:])
	if year < 0 || twoDigits(b) < 0 || twoDigits(b[2:]) < 0 || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) ||
		hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60 { // 60: a leap second
		return 0, false
	}
	milli, rest, ok := fraction(b[fixed:])
	if !ok {
		return 0, false
	}
	shift, ok := zone(rest)
	if !ok {
		return 0, false
	}
	seconds := daysSinceEpoch(year, month, day)*secondsPerDay + hour*3600 + minute*60 + second - shift*60
	at := max(base.Millis(seconds)*1000+base.Millis(milli), 1)
	return at, at <= maxTime
}

// fraction reads the fraction of a second, if there is one, in milliseconds.
func fraction(b []byte) (milli int, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '.' {
		return 0, b, true
	}
	i, unit := 1, 100
	for ; i < len(b) && '0' <= b[i] && b[i] <= '9'; i++ {
		milli += int(b[i]-'0') * unit
		unit /= 10
	}
	return milli, b[i:], i > 1
}

// zone reads Z or a numeric offset, in minutes east of UTC.
func zone(b []byte) (minutes int, ok bool) {
	if len(b) == 1 && toLower(b[0]) == 'z' {
		return 0, true
	}
	if len(b) != len("+00:00") || b[0] != '+' && b[0] != '-' || b[3] != ':' {
		return 0, false
	}
	h, m := twoDigits(b[1:]), twoDigits(b[4:])
	if h < 0 || h > 23 || m < 0 || m > 59 {
		return 0, false
	}
	if minutes = h*60 + m; b[0] == '-' {
		minutes = -minutes
	}
	return minutes, true
}

// twoDigits reads the number that b begins with, negative when it is none.
func twoDigits(b []byte) int {
	if b[0] < '0' || b[0] > '9' || b[1] < '0' || b[1] > '9' {
		return -1
	}
	return int(b[0]-'0')*10 + int(b[1]-'0')
}

func isLeap(year int) bool { return year%4 == 0 && (year%100 != 0 || year%400 == 0) }

func daysIn(year, month int) int {
	switch month {
	case 2:
		if isLeap(year) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// daysSinceEpoch counts days from 1970-01-01 in the Gregorian calendar. It counts
// years from March, so that the leap day is the last of its year, and in eras of
// 400 years.
func daysSinceEpoch(year, month, day int) int {
	if month <= 2 {
		year--
	}
	year += 400 // year 0 stays positive after the step back
	era, yearOfEra := year/400, year%400
	dayOfYear := (153*((month+9)%12)+2)/5 + day - 1
	return (era-1)*146_097 + yearOfEra*365 + yearOfEra/4 - yearOfEra/100 + dayOfYear - 719_468
}

// civil is the inverse of daysSinceEpoch, for days from 1970 on.
func civil(days int) (year, month, day int) {
	days += 719_468
	era, dayOfEra := days/146_097, days%146_097
	yearOfEra := (dayOfEra - dayOfEra/1460 + dayOfEra/36_524 - dayOfEra/146_096) / 365
	dayOfYear := dayOfEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	shifted := (5*dayOfYear + 2) / 153
	day = dayOfYear - (153*shifted+2)/5 + 1
	month = (shifted+2)%12 + 1
	year = era*400 + yearOfEra
	if month <= 2 {
		year++
	}
	return year, month, day
}

// appendTime appends t, which is not negative, as RFC 3339 in UTC, with
// milliseconds when it has any.
func appendTime(dst []byte, t base.Millis) []byte {
	seconds, milli := int(t/1000), int(t%1000)
	year, month, day := civil(seconds / secondsPerDay)
	second := seconds % secondsPerDay
	dst = appendPadded(dst, year, 1000)
	dst = appendPadded(append(dst, '-'), month, 10)
	dst = appendPadded(append(dst, '-'), day, 10)
	dst = appendPadded(append(dst, 'T'), second/3600, 10)
	dst = appendPadded(append(dst, ':'), second/60%60, 10)
	dst = appendPadded(append(dst, ':'), second%60, 10)
	if milli > 0 {
		dst = appendPadded(append(dst, '.'), milli, 100)
	}
	return append(dst, 'Z')
}

// appendPadded appends n with as many digits as unit, a power of ten, has.
func appendPadded(dst []byte, n, unit int) []byte {
	for ; unit > 0; unit /= 10 {
		dst = append(dst, byte('0'+n/unit%10))
	}
	return dst
}
