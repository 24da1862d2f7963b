import { describe, expect, it } from 'vitest';
import {
  bytes,
  count,
  duration,
  estimate,
  parameters,
  percent,
  remaining,
  shellWord,
  speed,
  typedNumber,
} from './format';

describe('numbers as people read them', () => {
  it('separates thousands', () => {
    expect(count(1048576)).toBe('1,048,576');
    expect(count(0)).toBe('0');
  });

  it('shows slow speeds with more places than fast ones', () => {
    expect(speed(0.047)).toBe('0.05');
    expect(speed(4.5678)).toBe('4.57');
    expect(speed(41.23)).toBe('41.2');
    expect(speed(1234.5)).toBe('1,235');
  });

  it('shows an estimate with two digits and no more', () => {
    expect([0.0466, 3.674, 12.4, 7.0].map(estimate)).toEqual(['0.047', '3.7', '12', '7']);
  });

  it('changes the unit of durations where the next one reads better', () => {
    expect(duration(0.4)).toBe('<1 ms');
    expect(duration(38.2)).toBe('38 ms');
    expect(duration(999.4)).toBe('999 ms');
    expect(duration(999.6)).toBe('1.0 s');
    expect(duration(59_949)).toBe('59.9 s');
    expect(duration(59_960)).toBe('1 min 0 s');
    expect(duration(125_000)).toBe('2 min 5 s');
  });

  it('counts bytes as disks are sold', () => {
    expect(bytes(999)).toBe('999 B');
    expect(bytes(11_400_000)).toBe('11.4 MB');
    expect(bytes(160_200_000_000)).toBe('160 GB');
    expect(bytes(999_700)).toBe('1.0 MB');
  });

  it('names large numbers of parameters', () => {
    expect(parameters(10_400_000)).toBe('10.4 million');
    expect(parameters(284_000_000_000)).toBe('284 billion');
    expect(parameters(900)).toBe('900');
  });

  it('says 100 % only when everything is there', () => {
    expect(percent(0, 0)).toBe(0);
    expect(percent(1, 3)).toBe(33);
    expect(percent(999_999, 1_000_000)).toBe(99);
    expect(percent(1_000_000, 1_000_000)).toBe(100);
    expect(percent(1_000_001, 1_000_000)).toBe(100);
  });

  it('tells a time to wait no more exactly than it is known', () => {
    expect(remaining(0)).toBe('under 1 min');
    expect(remaining(59)).toBe('under 1 min');
    expect(remaining(60)).toBe('1 min');
    expect(remaining(3599)).toBe('1 h');
    expect(remaining(4800)).toBe('1 h 20 min');
    expect(remaining(86_400)).toBe('1 day');
    expect(remaining(3 * 86_400 + 7300)).toBe('3 days 2 h');
  });
});

it('a typed number is what the person means, or none', () => {
  const whole: [string, number][] = [
    ['1000', 1000],
    ['1,000', 1000],
    ['1.000', 1000],
    [' 32 768 ', 32768],
    ['32\u202f768', 32768],
    ["1'048'576", 1048576],
    ['1,048,576', 1048576],
    ['-1,000', -1000],
    ['1,048.576', NaN],
    ['10,00', 10],
    ['2,5', 2.5],
    ['0', 0],
    ['', NaN],
    ['hot', NaN],
    ['1,000,00', NaN],
  ];
  for (const [text, number] of whole) expect(typedNumber(text, true), text).toBe(number);
  const decimal: [string, number][] = [
    ['0.6', 0.6],
    ['0,6', 0.6],
    ['0,001', 0.001],
    ['0.001', 0.001],
    ['1.125', 1.125],
    ['12,5', 12.5],
    ['1,000', NaN],
    ['32,768', NaN],
    ['1,000,000', NaN],
    ['', NaN],
  ];
  for (const [text, number] of decimal) expect(typedNumber(text, false), text).toBe(number);
});

it('a path is one word for a shell, whatever stands in it', () => {
  expect(shellWord('/home/you/a b.trace')).toBe("'/home/you/a b.trace'");
  expect(shellWord("/home/o'hara/$(x).trace")).toBe("'/home/o'\\''hara/$(x).trace'");
});
