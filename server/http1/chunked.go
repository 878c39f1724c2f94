package http1

const (
	maxChunkDigits = 15   // hex digits of a chunk size: below 2^60 it can't overflow
	maxExtension   = 256  // bytes of a chunk's extensions
	maxTrailers    = 4096 // bytes of all trailers
)

// Chunked decodes a chunked body incrementally. Its zero value, with Max set, is
// ready for the first byte after the head. Extensions and trailers are checked
// and dropped.
type Chunked struct {
	Max int64 // most bytes of data; 0: no data at all

	left   int64 // bytes of the chunk that are still to come
	total  int64 // bytes of data announced so far
	state  chunkState
	digits uint8  // of the size seen
	line   uint16 // bytes of the extensions or trailers seen
}

type chunkState uint8

const (
	inSize chunkState = iota
	inExtension
	afterSize // LF is due
	inData
	afterData   // CR is due
	afterDataCR // LF is due
	atTrailer   // at the beginning of a trailer or of the last line
	inTrailerName
	inTrailerValue
	afterTrailer // LF is due
	atEnd        // LF of the last line is due
	chunksDone
)

// Done reports whether the whole body, its last line included, has been decoded.
func (d *Chunked) Done() bool { return d.state == chunksDone }

// Next decodes from in until it has met one run of data, the body's end, or the end of in. It
// returns the data, which aliases in, and how many bytes of in it has used. An error is an *Error.
func (d *Chunked) Next(in []byte) (data []byte, n int, err error) {
	for n < len(in) && d.state != chunksDone {
		if d.state == inData {
			k := int(min(int64(len(in)-n), d.left))
			data = in[n : n+k]
			if d.left -= int64(k); d.left == 0 {
				d.state = afterData
			}
			return data, n + k, nil
		}
		if d.state <= afterDataCR {
			err = d.frame(in[n])
		} else {
			err = d.trailer(in[n])
		}
		if err != nil {
			return nil, n, err
		}
		n++
	}
	return nil, n, nil
}

// frame takes one byte of the lines around the data.
func (d *Chunked) frame(c byte) error {
	switch d.state {
	case inSize:
		if v := hexValue(c); v >= 0 && d.digits < maxChunkDigits {
			d.digits++
			d.left = d.left<<4 | int64(v)
			return nil
		}
		switch {
		case d.digits == 0:
			return errChunk
		case c == ';':
			d.state, d.line = inExtension, 0
		case c == '\r':
			d.state = afterSize
		default:
			return errChunk
		}
		return nil
	case inExtension:
		switch d.line++; {
		case c == '\r':
			d.state = afterSize
		case class[c]&isValue == 0 || d.line > maxExtension:
			return errChunk
		}
		return nil
	case afterSize:
		if c != '\n' {
			return errChunk
		}
		return d.sized()
	case afterData:
		d.state = afterDataCR
		return unless(c == '\r', errChunk)
	}
	d.state = inSize
	return unless(c == '\n', errChunk)
}

// sized acts on a whole chunk size.
func (d *Chunked) sized() error {
	d.digits = 0
	if d.left == 0 {
		d.state, d.line = atTrailer, 0
		return nil
	}
	if d.left > d.Max-d.total {
		return errBodyTooLarge
	}
	d.total += d.left
	d.state = inData
	return nil
}

// trailer takes one byte after the last chunk.
func (d *Chunked) trailer(c byte) error {
	if d.line++; d.line > maxTrailers {
		return errTrailersTooLarge
	}
	switch d.state {
	case atTrailer:
		if c == '\r' {
			d.state = atEnd
			return nil
		}
		d.state = inTrailerName
		return unless(class[c]&isToken != 0, errTrailer)
	case inTrailerName:
		if c == ':' {
			d.state = inTrailerValue
			return nil
		}
		return unless(class[c]&isToken != 0, errTrailer)
	case inTrailerValue:
		if c == '\r' {
			d.state = afterTrailer
			return nil
		}
		return unless(class[c]&isValue != 0, errTrailer)
	case afterTrailer:
		d.state = atTrailer
		return unless(c == '\n', errTrailer)
	}
	d.state = chunksDone
	return unless(c == '\n', errTrailer)
}

func unless(ok bool, e *Error) error {
	if ok {
		return nil
	}
	return e
}

func hexValue(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
