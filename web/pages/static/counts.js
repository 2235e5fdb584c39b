// Numbers with their nouns, such as "1 delivery" and "2,000 deliveries".

const number = new Intl.NumberFormat();

export const counted = (count, one, more) => `${number.format(count)} ${count === 1 ? one : more}`;
